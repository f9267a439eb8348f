"""When containerd restarts, when it does not, and what a transaction is made of."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpurack.decide.containerd import config, decision, edit, unit
from gpurack.decide.containerd.decision import proof, serve
from gpurack.decide.containerd.models import Binary, ConfigFile, Cri, Digest, Ran, Service, Snapshot
from gpurack.decide.decision import Await, Decision, Disruption, Reload, Remove, Run, Unit, Write
from tests.unit.decide.containerd.found import (
    FIXTURES,
    WANTED,
    as_wanted,
    files,
    fingerprint_of,
    fixture,
    snapshot,
)

UNKNOWN = (
    'time="2026-11-30T23:14:02Z" level=warning msg="Ignoring unknown key in TOML for plugin" '
    'error="strict mode: fields in the document are missing in the target struct" '
    "key=not_a_key plugin=io.containerd.cri.v1.runtime"
)


def decide(found: Snapshot, wanted: config.Wanted = WANTED) -> Decision:
    return serve(wanted, found, executing=True)


def verbs(made: Decision) -> list[str]:
    return [step.verb for step in made.steps if isinstance(step, Unit)]


def written(made: Decision) -> list[str]:
    return [step.path for step in made.steps if isinstance(step, Write)]


def test_a_host_as_wanted_is_left_alone() -> None:
    made = decide(as_wanted())
    assert (made.steps, made.refused, made.disruption) == ((), (), Disruption.NONE)


def test_before_the_package_is_there_steps_are_planned_and_nothing_is_refused() -> None:
    made = serve(WANTED, Snapshot(), executing=False)
    assert not made.refused
    assert verbs(made) == ["enable", "start"]


def test_after_the_package_step_a_missing_program_is_refused() -> None:
    assert [problem.code for problem in decide(Snapshot()).refused] == ["E-CTRD-16"]


def test_a_program_that_reads_another_schema_is_refused_only_after_the_package_step() -> None:
    found = snapshot(binaries=(Binary(path="/usr/bin/containerd", version=(1, 7, 28)),))
    assert [problem.code for problem in decide(found).refused] == ["E-CTRD-16"]
    assert not serve(WANTED, found, executing=False).refused
    assert not decide(
        replace(found, binaries=(Binary(path="/usr/bin/containerd", version=(2, 0, 7)),))
    ).refused


def test_the_packaged_file_is_repaired_and_containerd_restarted_alone_with_cri_awaited() -> None:
    found = snapshot(
        files(root=fixture("packaged.toml")), cri=Cri(error="unknown service runtime.v1.RuntimeService")
    )
    made = decide(found)
    assert written(made) == [config.ROOT, config.DROP_IN, unit.DROP_IN]
    assert made.disruption is Disruption.CONTAINERD_RESTART
    assert "disables the CRI plugin" in made.reason
    units = [step.name for step in made.steps if isinstance(step, Unit)]
    assert (units, verbs(made)) == (["containerd.service"], ["restart"])
    kinds = [type(step) for step in made.steps]
    scripts = [step.script if isinstance(step, Run) else "" for step in made.steps]
    judged = scripts.index(decision.judge(config.ROOT))
    assert judged < kinds.index(Reload) < kinds.index(Unit) < kinds.index(Await) < len(kinds)


def test_every_toml_file_is_judged_by_containerd_before_it_takes_its_place() -> None:
    made = decide(snapshot())
    for step in made.steps:
        if isinstance(step, Write) and step.path.endswith(".toml"):
            assert step.validate == decision.judge('"$1"')


def test_the_guides_steps_by_hand_are_repaired_and_the_reasons_named() -> None:
    """`containerd config default` and sed, as published: the pause image and certs.d are not the site's."""
    made = decide(
        snapshot(files(root=fixture("guide_229.toml"))),
        replace(WANTED, sandbox="mirror.example/pause:3.10.1"),
    )
    assert "sandbox registry.k8s.io/pause:3.10.1, wanted mirror.example/pause:3.10.1" in made.reason
    assert "config_path , wanted /etc/containerd/certs.d" in made.reason
    assert "SystemdCgroup" not in made.reason


def test_spelling_out_what_is_in_force_already_does_not_restart_containerd() -> None:
    """R92: the effective configuration decides; here our drop-in alone carries it and the root lacks it."""
    healthy = as_wanted()
    root = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"
    given = {**healthy.files, config.ROOT: ConfigFile(path=config.ROOT, text=root, changed=50.0)}
    made = decide(replace(healthy, files=given))
    assert written(made) == [config.ROOT]
    assert (verbs(made), made.disruption) == ([], Disruption.NONE)
    assert any(isinstance(step, Run) and decision.NOTE in step.script for step in made.steps)


def test_a_file_written_without_a_restart_is_no_reason_to_restart_later() -> None:
    healthy = as_wanted()
    given = {path: replace(file, changed=500.0) for path, file in healthy.files.items()}
    noted = replace(healthy, files=given, ran=Ran(pid=7, ticks=77, fingerprint=fingerprint_of(healthy)))
    assert decide(noted).steps == ()
    other_process = replace(noted, ran=Ran(pid=7, ticks=78, fingerprint=fingerprint_of(healthy)))
    assert verbs(decide(other_process)) == ["restart"]


@pytest.mark.parametrize(("changed", "restarts"), [(99.0, False), (101.0, True), (1000.5, False)])
def test_a_file_newer_than_the_process_restarts_it_and_a_date_in_the_future_proves_nothing(
    changed: float, *, restarts: bool
) -> None:
    healthy = as_wanted()
    given = {**healthy.files, config.ROOT: replace(healthy.files[config.ROOT], changed=changed)}
    made = decide(replace(healthy, files=given))
    assert (verbs(made) == ["restart"]) is restarts
    assert (config.ROOT in made.reason) is restarts


def test_a_toml_file_that_nothing_imports_is_no_reason_to_restart() -> None:
    healthy = as_wanted()
    stray = ConfigFile(path="/etc/containerd/backup/old.toml", text="broken [", changed=500.0)
    assert decide(replace(healthy, files={**healthy.files, stray.path: stray})).steps == ()


def test_a_runtime_that_the_toolkit_added_and_the_process_read_is_no_reason_to_restart() -> None:
    healthy = as_wanted()
    nvidia = (
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]\n"
        "runtime_type = 'io.containerd.runc.v2'\noptions = {SystemdCgroup = true}\n"
    )
    found = replace(healthy, files={**healthy.files, **files(conf_99_nvidia=nvidia)})
    assert decide(found).steps == ()


def test_a_running_process_on_cgroupfs_with_containers_needs_a_drain() -> None:
    found = replace(as_wanted(), cri=Cri(ready=True, systemd_cgroup={"runc": False}), containers=3)
    assert decide(found).disruption is Disruption.DRAIN
    assert decide(replace(found, containers=0)).disruption is Disruption.CONTAINERD_RESTART


def test_a_containerd_that_is_stopped_is_started_and_one_not_enabled_is_enabled_without_a_restart() -> None:
    healthy = as_wanted()
    assert verbs(decide(replace(healthy, daemons=(), service=Service(found=True, enabled=True)))) == ["start"]
    made = decide(replace(healthy, service=replace(healthy.service, enabled=False)))
    assert (verbs(made), made.disruption) == (["enable"], Disruption.NONE)


def test_systemd_is_reloaded_only_for_the_unit_file_and_not_for_the_proxy() -> None:
    proxied = replace(WANTED, proxy="http://user:pw@proxy.example:3128", no_proxy=(".svc",))
    made = decide(as_wanted(), proxied)
    assert written(made) == [unit.ENVIRONMENT]
    assert not [step for step in made.steps if isinstance(step, Reload)]
    assert verbs(made) == ["restart"]
    (write,) = (step for step in made.steps if isinstance(step, Write))
    assert (write.mode, write.secret) == (0o600, True)
    back = decide(as_wanted(proxied))
    assert [step.path for step in back.steps if isinstance(step, Remove)] == [unit.ENVIRONMENT]


def test_a_run_that_was_cut_between_drop_in_and_reload_is_finished_by_the_next() -> None:
    healthy = as_wanted()
    cut = replace(
        healthy,
        service=replace(healthy.service, drop_ins=(), stale=True),
        ran=Ran(pid=7, ticks=77, fingerprint=fingerprint_of(healthy)),
    )
    made = decide(cut)
    assert [type(step) for step in made.steps] == [Reload, Run]
    assert made.disruption is Disruption.UNIT_RELOAD


def test_a_unit_that_others_changed_is_not_reloaded_by_us() -> None:
    healthy = as_wanted()
    assert decide(replace(healthy, service=replace(healthy.service, stale=True))).steps == ()


def test_an_unknown_key_is_refused_before_a_restart_and_left_alone_without_one() -> None:
    healthy = as_wanted()
    bad = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nnot_a_key = 1\n"
    found = replace(healthy, files={**healthy.files, **files(conf_10_site=bad)}, judged=(UNKNOWN,))
    assert decide(found).steps == ()
    (problem,) = decide(replace(found, daemons=(), service=Service(found=True, enabled=True))).refused
    assert problem.code == "E-CTRD-13"
    assert problem.where is not None
    assert (problem.where.file, problem.where.line) == ("/etc/containerd/conf.d/10-site.toml", 3)


def test_a_file_whose_layout_is_lost_is_laid_aside_before_it_is_replaced() -> None:
    root = "version = 2\n# why\n[plugins.'io.containerd.grpc.v1.cri']\nenable_selinux = true\n"
    made = decide(snapshot(files(root=root)))
    aside = next(step for step in made.steps if isinstance(step, Write))
    assert (aside.path, aside.content, aside.mode) == (decision.ASIDE, root, 0o600)
    assert not decision.ASIDE.endswith(".toml")  # no import may load it


def test_the_fingerprint_ignores_layout_import_paths_and_version_but_no_value() -> None:
    one = {"version": 3, "imports": ["/a"], "plugins": {"x": {"y": 1}}}
    assert decision.fingerprint(one, {}) == decision.fingerprint({"plugins": {"x": {"y": 1}}}, {})
    assert decision.fingerprint(one, {}) != decision.fingerprint({"plugins": {"x": {"y": 2}}}, {})
    assert decision.fingerprint(one, {"f": "1"}) != decision.fingerprint(one, {"f": "2"})


def test_the_proof_wants_cri_ready_and_the_systemd_driver_in_the_running_process() -> None:
    healthy = as_wanted()
    assert proof(WANTED, healthy) == ()
    assert [p.code for p in proof(WANTED, replace(healthy, cri=Cri(error="no socket")))] == ["E-CTRD-17"]
    wrong = replace(healthy, cri=Cri(ready=True, systemd_cgroup={"runc": False}))
    assert [p.code for p in proof(WANTED, wrong)] == ["E-CTRD-18"]


def test_a_memlock_limit_that_the_kernel_did_not_grant_is_said() -> None:
    healthy = as_wanted()
    (daemon,) = healthy.daemons
    found = replace(healthy, daemons=(replace(daemon, memlock="8388608"),))
    assert "8388608" in decide(found).notes[0]
    assert decide(found).steps == ()


@pytest.mark.parametrize(
    ("said", "code", "fails"),
    [
        ("", 0, False),
        (UNKNOWN, 0, True),
        ("containerd: failed to unmarshal TOML", 1, True),
        ("info", 0, False),
    ],
)
def test_the_judge_fails_as_the_daemon_would_and_for_ignored_keys(
    tmp_path: Path, said: str, code: int, *, fails: bool
) -> None:
    """The shell text itself, with a stand-in that prints what the real program printed."""
    stand_in = tmp_path / "containerd"
    stand_in.write_text(f"#!/bin/sh\necho config\ncat {tmp_path}/said >&2\nexit {code}\n")
    stand_in.chmod(0o755)
    (tmp_path / "said").write_text(said)
    script = decision.judge('"$1"').replace("/usr/bin/containerd", str(stand_in))
    done = subprocess.run(["dash", "-c", script, "-", "/x"], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is fails
    assert (said in done.stderr) if fails else not done.stderr


def test_the_cri_probe_knows_ready_from_not_ready(tmp_path: Path) -> None:
    answer = (FIXTURES / "crictl_info.json").read_text()
    crictl = tmp_path / "crictl"
    crictl.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    crictl.chmod(0o755)
    for text, code in ((answer, 0), (answer.replace('"status": true', '"status": false'), 1), ("", 1)):
        (tmp_path / "answer").write_text(text)
        done = subprocess.run(
            ["dash", "-c", decision.CRI_READY], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False
        )
        assert done.returncode == code


def test_digests_of_others_do_not_count_as_ours() -> None:
    healthy = as_wanted()
    other = Digest(path="/etc/containerd/certs.d/x/hosts.toml", sha256="0", mode=0o644, changed=999.0)
    assert decide(replace(healthy, digests={**healthy.digests, other.path: other})).steps == ()


def test_the_text_of_our_drop_in_is_the_same_each_time() -> None:
    assert config.plan(WANTED, {}).texts == config.plan(WANTED, {}).texts
    assert config.plan(WANTED, {}).texts[config.DROP_IN].startswith(edit.HEADER)
