"""What the kubelet script answers, read strictly."""

from __future__ import annotations

import subprocess
from base64 import b64encode

import pytest

from gpurack.decide.kubelet.checkpoints import CpuState, Damaged
from gpurack.facts.kubelet import Kubelet, parse_snapshot


def coded(text: str) -> str:
    return b64encode(text.encode()).decode()


def state_file(name: str, text: str) -> str:
    return f"file\t/var/lib/kubelet/{name}\t100\t{coded(text)}"


ANSWER = "\n".join(
    [
        f"file\t/etc/default/kubelet\t100\t{coded('KUBELET_EXTRA_ARGS=--v=2')}",
        "dir",
        f"file\t/etc/kubernetes/kubelet.conf.d/90-site.conf\t100\t{coded('b')}",
        f"file\t/etc/kubernetes/kubelet.conf.d/10-site/a.conf\t100\t{coded('a')}",
        state_file("cpu_manager_state", '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'),
        state_file("memory_manager_state", ""),
        state_file("pod_status_manager_state", '{"data":"{}","checksum":208}"'),
        state_file("dra_manager_state", "{}"),
        "joined",
        "unit\tloaded\tenabled\tactive\trunning\t2\t100500000",
        f"command\t{coded(chr(0).join(['/usr/bin/kubelet', '--v=2', '']))}",
        "healthy",
        f"journal\t{coded('command failed')}",
        "address\t192.0.2.21",
        "clock\tabc\t1000\t140.25",
        "end",
    ]
)


def test_the_whole_answer_becomes_one_snapshot() -> None:
    found = parse_snapshot(ANSWER)
    assert found.joined
    assert found.drop_in_dir
    assert found.text("/etc/default/kubelet") == "KUBELET_EXTRA_ARGS=--v=2"
    assert found.cpu == CpuState(policy="none")
    assert found.command == ("/usr/bin/kubelet", "--v=2")
    assert found.service.restarts == 2
    assert found.age == pytest.approx(39.75)
    assert found.stable
    assert found.journal == ("command failed",)
    assert found.addresses == {"192.0.2.21"}


def test_o_04_every_checkpoint_is_looked_at_not_only_two() -> None:
    found = parse_snapshot(ANSWER)
    assert found.memory == Damaged("empty file")
    assert isinstance(found.others["pod_status_manager_state"], Damaged)
    assert found.others["dra_manager_state"] is None


def test_drop_ins_come_in_the_order_of_kubelets_walk() -> None:
    assert [path.rpartition(".d/")[2] for path in parse_snapshot(ANSWER).drop_ins] == [
        "10-site/a.conf",
        "90-site.conf",
    ]


def test_a_host_without_kubelet_is_a_snapshot_too() -> None:
    found = parse_snapshot("unit\tnot-found\t\tinactive\tdead\t0\t0\nclock\tabc\t1000\t5.0\nend")
    assert not found.service.loaded
    assert found.cpu is None
    assert not found.running


@pytest.mark.parametrize(
    "text", ["", ANSWER.removesuffix("end"), "nonsense\nend", "file\t/x\t1\t!!\nend", "unit\tloaded\nend"]
)
def test_half_an_answer_is_no_snapshot(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_snapshot(text)


def test_the_script_is_posix_shell() -> None:
    subprocess.run(["dash", "-n", "-c", Kubelet.script], check=True)
