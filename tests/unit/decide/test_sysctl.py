"""Module before value, and the file that wins at boot is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide.decision import Run, Write
from gpurack.decide.sysctl import (
    BRIDGE,
    FORWARD,
    MODULES_FILE,
    SYSCTL_FILE,
    ConfigFile,
    Kernel,
    Module,
    Setting,
    apply,
    assignments,
    modules_text,
    sysctl_text,
    wanted,
)

WANT = wanted(ipv6=False)
NONE = frozenset[str]()
SHARED = frozenset({"shared-kernel"})
OURS = ConfigFile(path=SYSCTL_FILE, text=sysctl_text(WANT))


def kernel(**changes: object) -> Kernel:
    done = Kernel(
        release="6.8.0-88-generic",
        tree=True,
        modules=tuple(Module(name=name, loaded=True, available=True) for name in WANT.modules),
        settings=tuple(Setting(key=key, value="1", writable=True) for key in WANT.sysctls),
        files=(OURS,),
        modules_file=modules_text(WANT),
        container=False,
    )
    return replace(done, **changes)  # type: ignore[arg-type]


def setting(key: str, value: str | None, *, writable: bool = True) -> tuple[Setting, ...]:
    return tuple(
        Setting(key=name, value=value, writable=writable)
        if name == key
        else Setting(key=name, value="1", writable=True)
        for name in WANT.sysctls
    )


# O-42, verbatim: no bridge keys yet, ip_forward 0 although one file says 1, and a later-sorted one says 0
O_42 = kernel(
    modules=(
        Module(name="overlay", loaded=True, available=True),
        Module(name="br_netfilter", loaded=False, available=True),
    ),
    settings=(
        Setting(key=FORWARD, value="0", writable=True),
        *(Setting(key=key, value=None, writable=False) for key in BRIDGE),
    ),
    files=(
        ConfigFile(path="/etc/sysctl.d/60-forward.conf", text="net.ipv4.ip_forward=1\n"),
        ConfigFile(path="/usr/lib/sysctl.d/99-vendor.conf", text="net.ipv4.ip_forward=0\n"),
    ),
    modules_file=None,
)


def test_o_42_the_module_is_persisted_and_loaded_before_its_values() -> None:
    order = [step.path if isinstance(step, Write) else step.script for step in apply(WANT, NONE, O_42).steps]  # type: ignore[union-attr]
    assert order[:3] == [MODULES_FILE, "modprobe br_netfilter", SYSCTL_FILE]
    assert [text.rpartition("/")[2] for text in order[3:]] == [
        "ip_forward",
        "bridge-nf-call-iptables",
        "bridge-nf-call-ip6tables",
    ]


def test_o_42_the_vendor_file_that_ours_beats_is_named() -> None:
    decision = apply(WANT, NONE, O_42)
    assert decision.notes == (
        f"{SYSCTL_FILE} wins over /usr/lib/sysctl.d/99-vendor.conf:1 net.ipv4.ip_forward = 0",
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/sysctl.d/zz-hardening.conf", "net.ipv4.ip_forward = 0\n"),
        ("/etc/sysctl.conf", "# x\nnet.ipv4.ip_forward=0\n"),
        ("/etc/sysctl.d/zz.conf", "net/ipv4/ip_forward = 0\n"),
        ("/etc/sysctl.d/zz.conf", "-net.ipv4.conf.all.forwarding = 0\n"),
        ("/etc/ufw/sysctl.conf", "net/ipv4/ip_forward=0\n"),
    ],
)
def test_o_42_a_file_that_beats_ours_is_refused_with_its_line(path: str, text: str) -> None:
    (problem,) = apply(WANT, NONE, kernel(files=(OURS, ConfigFile(path=path, text=text)))).refused
    assert problem.code == "E-SYSCTL-02"
    assert str(problem.found).startswith(f"{path}:")


@pytest.mark.parametrize(
    "text",
    [
        "net.ipv4.ip_forward = 1\n",
        "#net.ipv4.ip_forward = 0\n",
        "; net.ipv4.ip_forward=0\n",
        "net.ipv4.tcp_syncookies=0\n",
    ],
)
def test_a_later_file_that_says_the_same_or_nothing_is_no_problem(text: str) -> None:
    decision = apply(WANT, NONE, kernel(files=(OURS, ConfigFile(path="/etc/sysctl.d/zz.conf", text=text))))
    assert (decision.refused, decision.steps, decision.notes) == ((), (), ())


def test_a_pattern_never_beats_an_explicit_key() -> None:
    late = ConfigFile(path="/etc/sysctl.d/zz.conf", text="net.bridge.bridge-nf-call-* = 0\n")
    assert not apply(WANT, NONE, kernel(files=(OURS, late))).refused


def test_o_42_a_module_that_is_built_in_counts_as_present() -> None:
    built_in = tuple(Module(name=name, loaded=True, available=False) for name in WANT.modules)
    assert apply(WANT, NONE, kernel(modules=built_in)).steps == ()


@pytest.mark.parametrize(("tree", "cause"), [(False, "does not exist"), (True, "has no br_netfilter")])
def test_o_42_a_missing_module_file_is_a_pending_reboot_or_a_missing_package(tree: bool, cause: str) -> None:
    missing = (
        Module(name="overlay", loaded=True, available=True),
        Module(name="br_netfilter", loaded=False, available=False),
    )
    (problem,) = apply(WANT, NONE, kernel(modules=missing, tree=tree)).refused
    assert "reboot pending or modules package missing" in problem.what
    assert cause in str(problem.found)


def test_what_a_container_host_cannot_change_is_said_only_with_its_gate() -> None:
    stuck = kernel(settings=setting(BRIDGE[0], "0", writable=False), container=True)
    assert [problem.code for problem in apply(WANT, NONE, stuck).refused] == ["E-SYSCTL-03"]
    decision = apply(WANT, SHARED, stuck)
    assert (decision.refused, decision.steps) == ((), ())
    assert BRIDGE[0] in decision.notes[0]


def test_a_wrong_value_is_set_and_the_reason_names_it() -> None:
    decision = apply(WANT, NONE, kernel(settings=setting(FORWARD, "0")))
    assert [step for step in decision.steps if isinstance(step, Run)] == list(decision.steps)
    assert decision.reason == "net.ipv4.ip_forward is 0 (R63)"


def test_values_that_only_ipv6_needs_are_not_asked_for_without_it() -> None:
    six = (*kernel().settings, Setting(key="net.ipv6.conf.all.forwarding", value="0", writable=True))
    assert apply(WANT, NONE, kernel(settings=six)).steps == ()
    assert "net.ipv6.conf.all.forwarding" in wanted(ipv6=True).sysctls


def test_slashes_keep_dots_inside_names() -> None:
    (line,) = assignments(ConfigFile(path="x", text="net/ipv4/conf/eth0.100/forwarding = 1\n"))
    assert line.key == "net.ipv4.conf.eth0/100.forwarding"
