"""The small parts of the rack: memory between runs, locks, processes, command lines, site documents."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpurack.errors import BadInput, Problem, Refused
from gpurack.lab import commands, machine, network, process, reach, root, state, vm
from gpurack.lab.state import RackHost
from gpurack.site.load import load

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ROOT", tmp_path)


GUEST = RackHost("gpu-3", "10.77.0.21", "vm", 4)


# ------------------------------------------------------------------------------------ state
def test_what_was_remembered_comes_back() -> None:
    state.remember(GUEST, pid=7)
    state.remember(GUEST, image="x")
    assert state.recall("gpu-3")["pid"] == 7
    assert state.known() == (GUEST,)


@pytest.mark.parametrize("text", ["", "{", "[]", "nul"])
def test_half_a_file_is_no_memory(text: str) -> None:
    state.remember(GUEST)
    (GUEST.folder / "host.json").write_text(text)
    assert state.recall("gpu-3") == {}
    assert state.known() == ()


def test_second_run_is_refused_with_the_pid_of_the_first() -> None:
    code = "import sys, time; from gpurack.lab import state; from pathlib import Path\n"
    code += "state.ROOT = Path(sys.argv[1])\nwith state.locked():\n print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code, state.ROOT], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Refused) as refused, state.locked():
            pytest.fail("two runs hold the rack")
        assert str(holder.pid) in str(refused.value)
    finally:
        holder.kill()
        holder.communicate()
    with state.locked():
        pass


# ------------------------------------------------------------------------------------ processes
def test_a_recycled_pid_is_another_process() -> None:
    child = subprocess.Popen(["sleep", "60"])
    born = process.started(child.pid)
    assert born is not None
    assert process.alive(child.pid, born)
    assert not process.alive(child.pid, born - 1)
    process.end(child.pid, signal.SIGTERM, 5.0)
    assert not process.alive(child.pid)
    child.wait()


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    until = time.monotonic() + 10
    while process.alive(child.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not process.alive(child.pid)
    child.wait()


def test_what_ignores_the_first_signal_is_killed() -> None:
    child = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo ready; sleep 60 & wait; wait"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    process.end(child.pid, signal.SIGTERM, 0.3)
    assert not process.alive(child.pid)
    child.wait()
    child.stdout.close()


def test_background_hands_over_value_and_error() -> None:
    assert process.Background(lambda: 7).result() == 7

    def fail() -> None:
        raise Refused(Problem(code="E-LAB-99", what="no"))

    with pytest.raises(Refused, match="E-LAB-99"):
        process.Background(fail).result()


def test_background_does_not_outlive_the_program() -> None:
    gate = threading.Event()
    waiting = process.Background(gate.wait)
    assert all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
    gate.set()
    assert waiting.result()


def test_a_failed_tool_is_one_problem_with_its_last_words() -> None:
    with pytest.raises(Refused) as refused:
        process.tool("sh", "-c", "echo some; echo the reason >&2; exit 3")
    (problem,) = refused.value.problems
    assert "exit 3" in problem.what
    assert problem.found == "the reason"


# ------------------------------------------------------------------------------------ network, guests, images
def test_macs_are_local_stable_and_distinct() -> None:
    macs = {network.mac(f"10.77.0.{last}") for last in range(1, 255)}
    assert len(macs) == 254
    assert network.mac("10.77.0.21") == "52:54:00:4d:00:15"


def test_emulator_gets_two_nodes_with_half_of_the_cpus_each() -> None:
    GUEST.identity.mkdir(parents=True)
    (GUEST.identity / "product_uuid").write_text("0d1e2292-113c-429b-91df-cd0052da5c24\n")
    line = " ".join(vm.command(GUEST, vm.EMULATION, "tp0-21", memory=(2048, 1920), cpus=4))
    assert "node,nodeid=0,cpus=0-1,memdev=m0" in line
    assert "node,nodeid=1,cpus=2-3,memdev=m1" in line
    assert "id=m1,size=1920M" in line
    assert "-m 3968M" in line
    assert "-accel tcg,thread=multi -cpu max" in line


@pytest.mark.parametrize(("memory", "cpus"), [((2048, 2048), 3), ((2048, 2048), 0), ((2048, 100), 4)])
def test_impossible_guests_are_refused(memory: tuple[int, int], cpus: int) -> None:
    with pytest.raises(ValueError, match="make no guest"):
        vm.configure(GUEST, memory=memory, cpus=cpus)


def test_guest_keeps_what_it_was_given() -> None:
    vm.configure(GUEST, memory=(2048, 1920))
    assert state.recall("gpu-3")["memory"] == [2048, 1920]


def test_recipe_names_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    before = root.folder()
    monkeypatch.setattr(root, "PACKAGES", (*root.PACKAGES, "another"))
    assert root.folder() != before


def test_image_has_what_the_debs_of_kubernetes_depend_on() -> None:
    assert {"conntrack", "ethtool", "socat", "iptables", "kmod", "gpg", "sudo", "openssh-server"} <= set(
        root.PACKAGES
    )


# ------------------------------------------------------------------------------------ the way in
def test_known_hosts_names_host_and_address() -> None:
    GUEST.identity.mkdir(parents=True)
    (GUEST.identity / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAA root@gpu-3\n")
    assert reach.known_hosts([GUEST]) == "gpu-3,10.77.0.21 ssh-ed25519 AAAA\n"


def test_host_keys_are_checked_strictly() -> None:
    line = reach.argv(GUEST, "true")
    assert "StrictHostKeyChecking=yes" in line
    assert line[-2:] == ["root@10.77.0.21", "true"]


def test_waiting_for_a_host_that_ended_ends() -> None:
    begun = time.monotonic()
    nowhere = RackHost("none", "127.0.0.254", "container")
    with pytest.raises(reach.Stopped, match="E-LAB-14"):
        reach.wait(nowhere, print, runs=lambda: False)
    assert time.monotonic() - begun < 20


# ------------------------------------------------------------------------------------ site documents, machine
def test_the_lab_documents_ask_for_the_promised_hosts() -> None:
    hosts = commands.hosts_of(load(REPOSITORY / "inventories" / "lab_vm.yaml", files=False))
    assert hosts == (
        RackHost("cp-1", "10.77.0.11", "container"),
        RackHost("gpu-1", "10.77.0.12", "container", 4),
        RackHost("gpu-2", "10.77.0.13", "container", 4),
        GUEST,
    )


@pytest.mark.parametrize("text", ["2048", "2048,1,2", "2048,", "2048,x", "2048,100", "-1,2048"])
def test_bad_memory_sizes_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="E-LAB-13"):
        commands._sizes(text)


def test_good_memory_sizes_are_read() -> None:
    assert commands._sizes("2048,1920") == (2048, 1920)


def test_not_root_is_one_sentence_and_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Refused) as refused:
        machine.check(frozenset({"container"}))
    (problem,) = refused.value.problems
    assert "needs root" in problem.what
    assert problem.next


def test_every_lack_is_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("gpurack.defaults.LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "TOOLS", {"no-such-program": "no-such-package"})
    monkeypatch.setattr(machine, "ROOM", 2**62)
    with pytest.raises(Refused) as refused:
        machine.check(frozenset({"container"}))
    assert [problem.code for problem in refused.value.problems] == ["E-LAB-05", "E-LAB-06"]
    assert refused.value.problems[0].next == "apt-get install no-such-package"
