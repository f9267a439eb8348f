"""An active firewall is refused with the rule to add; ufw's words are from its manual (not run on Ubuntu)."""

from __future__ import annotations

import pytest

from gpurack.decide.firewall import Firewall, Firewalld, Ufw, firewalld_opens, judge, ufw_opens

OFF = Firewalld(active=False, target="default", ports=(), services=())
NO_UFW = Ufw(active=False, status=(), forward="DROP")
UFW_NOT_RUN_ON_UBUNTU = """\
Status: active

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW       Anywhere
10250/tcp                  ALLOW       10.77.0.0/24
2379:2380/tcp              ALLOW       10.77.0.0/24
10256                      DENY        Anywhere
6443/udp                   ALLOW       Anywhere
22/tcp (v6)                ALLOW       Anywhere (v6)
"""
STATUS = tuple(UFW_NOT_RUN_ON_UBUNTU.splitlines())


def ufw(status: tuple[str, ...] = STATUS, forward: str = "ACCEPT") -> Firewall:
    return Firewall(ufw=Ufw(active=True, status=status, forward=forward), firewalld=OFF)


@pytest.mark.parametrize(
    ("port", "opened"),
    [(22, True), (10250, True), (2380, True), (2381, False), (10256, False), (6443, False)],
)
def test_ufw_rules_not_run_on_ubuntu(port: int, opened: bool) -> None:
    assert ufw_opens(STATUS, port) is opened


def test_anything_from_somewhere_opens_every_port_not_run_on_ubuntu() -> None:
    assert ufw_opens(("Anywhere                   ALLOW       10.77.0.0/24",), 10250)
    assert not ufw_opens(("Anywhere                   ALLOW OUT   10.77.0.0/24",), 10250)


def test_a_gpu_node_behind_ufw_needs_kubelets_port_not_run_on_ubuntu() -> None:
    assert not judge("gpu", False, ufw()).refused
    closed = tuple(line for line in STATUS if not line.startswith("10250"))
    (problem,) = judge("gpu", False, ufw(closed)).refused
    assert problem.next == "ufw allow proto tcp from any to any port 10250"


def test_a_control_plane_behind_ufw_needs_the_api_not_run_on_ubuntu() -> None:
    assert [p.wanted for p in judge("control-plane", True, ufw()).refused] == ["6443/tcp open (API server)"]


def test_ufw_that_drops_forwarded_traffic_is_refused_not_run_on_ubuntu() -> None:
    assert [p.code for p in judge("gpu", False, ufw(forward="DROP")).refused] == ["E-FW-02"]
    routed = (*STATUS, "10.244.0.0/16              ALLOW FWD   Anywhere")
    assert not judge("gpu", False, ufw(routed, forward="DROP")).refused


@pytest.mark.parametrize(
    ("zone", "opened"),
    [
        (Firewalld(active=True, target="ACCEPT", ports=(), services=()), True),
        (Firewalld(active=True, target="default", ports=("10000-11000/tcp",), services=()), True),
        (Firewalld(active=True, target="default", ports=("10250/udp",), services=("ssh",)), False),
        (Firewalld(active=True, target="default", ports=(), services=("kubelet",)), True),
    ],
)
def test_a_zone_of_firewalld_opens_by_target_port_or_service(zone: Firewalld, opened: bool) -> None:
    assert firewalld_opens(zone, 10250) is opened
    assert bool(judge("gpu", False, Firewall(ufw=NO_UFW, firewalld=zone)).refused) is not opened


def test_no_firewall_is_no_problem_and_no_note() -> None:
    decision = judge("control-plane", True, Firewall(ufw=NO_UFW, firewalld=OFF))
    assert (decision.refused, decision.notes) == ((), ())
