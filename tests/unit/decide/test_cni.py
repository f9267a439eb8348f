from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpurack.decide.cni import CONFLIST, HELPER, ROUTES, UNIT, Laid, bridge, conflist, reach, routes
from gpurack.decide.decision import Decision, Disruption, Reload, Unit, Write
from gpurack.decide.node import NodeInApi

MINE = ("10.244.1.0/24",)
OTHERS = (("10.244.0.0/24", "192.0.2.11"),)


def node(name: str, *cidrs: str, addresses: tuple[str, ...] = ("192.0.2.11",)) -> NodeInApi:
    return NodeInApi(
        name=name,
        ready=True,
        machine_id="",
        system_uuid="",
        kubelet_version="",
        addresses=addresses,
        labels={},
        pod_cidrs=cidrs,
    )


def content(decision: Decision) -> dict[str, str]:
    return {step.path: step.content for step in decision.steps if isinstance(step, Write)}


FIRST = content(reach(OTHERS, Laid()))
LAID = Laid(
    conflist=conflist(MINE),
    routes=FIRST[ROUTES],
    helper=FIRST[HELPER],
    unit=FIRST[UNIT],
    configs=("10-gpurack.conflist",),
    state="active enabled",
)


def test_a_second_run_changes_nothing() -> None:
    assert not reach(OTHERS, LAID).steps
    assert not bridge(MINE, LAID).steps


def test_a_new_node_costs_one_file_and_disturbs_nobody() -> None:
    decision = reach((*OTHERS, ("10.244.2.0/24", "192.0.2.13")), LAID)
    write, restart = decision.steps
    assert isinstance(write, Write)
    assert write.path == ROUTES
    assert write.content.splitlines()[1:] == ["10.244.0.0/24 192.0.2.11", "10.244.2.0/24 192.0.2.13"]
    assert restart == Unit(name="gpurack-pod-routes.service", verb="restart")
    assert decision.disruption is Disruption.NONE


def test_a_first_run_reloads_enables_and_starts_the_routes() -> None:
    verbs = [step if isinstance(step, Reload) else step.verb for step in reach(OTHERS, Laid()).steps[3:]]  # type: ignore[union-attr]
    assert verbs == [Reload(), "enable", "restart"]


@pytest.mark.parametrize("state", ["inactive enabled", "failed enabled", "active disabled", "inactive "])
def test_routes_that_would_not_be_there_after_a_reboot_or_are_not_there_now_are_started(state: str) -> None:
    decision = reach(OTHERS, replace(LAID, state=state))
    assert decision.steps
    assert not content(decision)
    assert decision.disruption is Disruption.NONE


def test_another_pod_cidr_moves_every_pod_so_it_needs_a_drain() -> None:
    decision = bridge(("10.244.9.0/24",), LAID)
    assert content(decision).keys() == {CONFLIST}
    assert decision.disruption is Disruption.DRAIN
    assert bridge(MINE, Laid()).disruption is Disruption.NONE


@pytest.mark.parametrize("rival", ["05-cilium.conflist", "10-flannel.conflist"])
def test_left_overs_of_another_network_that_sort_first_are_refused_and_named(rival: str) -> None:
    decision = bridge(MINE, replace(LAID, configs=("10-gpurack.conflist", rival)))
    assert [problem.code for problem in decision.refused] == ["E-CNI-01"]
    assert rival in str(decision.refused[0].found)


@pytest.mark.parametrize("neighbour", ["87-podman.conflist", "99-loopback.conf"])
def test_what_sorts_after_ours_is_left_alone(neighbour: str) -> None:
    found = replace(LAID, configs=("10-gpurack.conflist", neighbour))
    assert not bridge(MINE, found).steps


def test_routes_go_to_every_other_node_by_an_address_of_the_same_family() -> None:
    nodes = (
        node("me", "10.244.1.0/24"),
        node("b", "10.244.0.0/24", "fd00:10::/64", addresses=("192.0.2.11", "2001:db8::11")),
        node("c", "fd00:11::/64"),
        node("d"),
    )
    assert routes("me", nodes) == (("10.244.0.0/24", "192.0.2.11"), ("fd00:10::/64", "2001:db8::11"))


def test_the_conflist_hands_out_addresses_of_every_family_of_the_node() -> None:
    document = json.loads(conflist(("10.244.1.0/24", "fd00:10:244:1::/64")))
    ipam = document["plugins"][0]["ipam"]
    assert ipam["ranges"] == [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:10:244:1::/64"}]]
    assert ipam["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
