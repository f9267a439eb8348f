from __future__ import annotations

import pytest

from gpurack.decide.kubeadm_output import Outcome, classify, outcome

LOG = "/var/log/gpurack/kubeadm-join.log"
O_29 = 'could not find a JWS signature in the cluster-info ConfigMap for token ID "c3de91"'
O_33 = """[preflight] Running pre-flight checks
error execution phase preflight: [preflight] Some fatal errors occurred:
\t[ERROR Port-10250]: Port 10250 is in use
\t[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists
\t[ERROR FileAvailable--etc-kubernetes-pki-ca.crt]: /etc/kubernetes/pki/ca.crt already exists
[preflight] If you know what you are doing, a check can be made non-fatal with `--ignore-preflight-errors=`
"""
R_46 = (
    'error execution phase kubelet-start: a Node with name "gpu-07" and status "Ready" already exists in the '
    "cluster. You must delete the existing Node or change the name of this new joining Node"
)


def test_the_last_line_of_the_log_is_the_outcome() -> None:
    assert outcome("a\nb\nexit 0\n") == Outcome(code=0, text="a\nb")
    assert outcome("a\nexit 1") == Outcome(code=1, text="a")


@pytest.mark.parametrize("text", ["", "a\nb", "a\nexit", "exit 1 was not the end\nmore"])
def test_a_log_without_an_outcome_was_cut_off(text: str) -> None:
    found = outcome(text)
    assert found.code is None
    assert [problem.code for problem in classify("join", found, log=LOG)] == ["E-KUBEADM-01"]


def test_a_join_that_worked_is_no_problem() -> None:
    assert classify("join", Outcome(code=0, text="[ERROR x]: of an earlier try"), log=LOG) == ()


def test_o_29_an_expired_token_is_named_by_its_public_half_only() -> None:
    (problem,) = classify("join", Outcome(code=1, text=O_29), log=LOG)
    assert problem.code == "E-KUBEADM-03"
    assert "c3de91" in problem.what
    assert "a token of its own" in str(problem.next)


def test_o_33_every_preflight_error_is_a_problem_of_its_own_with_a_cure() -> None:
    problems = classify("join", Outcome(code=1, text=O_33), log=LOG)
    assert [problem.what.partition(": ")[2] for problem in problems] == [
        "Port-10250",
        "FileAvailable--etc-kubernetes-kubelet.conf",
        "FileAvailable--etc-kubernetes-pki-ca.crt",
    ]
    assert problems[0].found == "Port 10250 is in use"
    assert "ss -ltnp" in str(problems[0].next)
    assert all("kubeadm reset" in str(problem.next) for problem in problems[1:])
    assert all(LOG in str(problem.next) for problem in problems)


@pytest.mark.parametrize("code", [1, 2, 3])
def test_the_exit_code_does_not_change_the_class(code: int) -> None:
    assert len(classify("join", Outcome(code=code, text=O_33), log=LOG)) == 3


def test_a_taken_name_is_its_own_class() -> None:
    (problem,) = classify("join", Outcome(code=1, text=R_46), log=LOG)
    assert problem.code == "E-KUBEADM-04"
    assert "gpu-07" in problem.what


def test_a_failed_phase_is_named_and_kubelets_journal_shown_for_kubelets_phases() -> None:
    text = "error execution phase kubelet-wait-bootstrap: a client error\nTo see the stack trace ..."
    (problem,) = classify("join", Outcome(code=1, text=text), log=LOG)
    assert problem.code == "E-KUBEADM-05"
    assert "kubelet-wait-bootstrap" in problem.what
    assert "journalctl -u kubelet" in str(problem.next)


def test_anything_else_shows_the_end_of_what_was_said() -> None:
    (problem,) = classify("init", Outcome(code=1, text="unknown flag: --x"), log=LOG)
    assert problem.code == "E-KUBEADM-06"
    assert problem.found == "unknown flag: --x"
