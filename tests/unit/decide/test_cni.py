from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpurack.decide.cni import CONFLIST, HELPER, ROUTES, UNIT, Laid, bridge, conflist, routes
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


def carried_out(decision: Decision) -> Laid:
    """The host after the decision."""
    files = {step.path: step.content for step in decision.steps if isinstance(step, Write)}
    assert files.keys() == {CONFLIST, ROUTES, HELPER, UNIT}
    return Laid(
        conflist=files[CONFLIST],
        routes=files[ROUTES],
        helper=files[HELPER],
        unit=files[UNIT],
        configs=("10-gpurack.conflist",),
        state="active enabled",
    )


LAID = carried_out(bridge(pod_cidrs=MINE, others=OTHERS, found=Laid()))


def test_a_second_run_changes_nothing() -> None:
    assert not bridge(pod_cidrs=MINE, others=OTHERS, found=LAID).steps


def test_a_new_node_costs_one_file_and_disturbs_nobody() -> None:
    more = (*OTHERS, ("10.244.2.0/24", "192.0.2.13"))
    decision = bridge(pod_cidrs=MINE, others=more, found=LAID)
    write, restart = decision.steps
    assert isinstance(write, Write)
    assert write.path == ROUTES
    assert write.content.splitlines()[1:] == ["10.244.0.0/24 192.0.2.11", "10.244.2.0/24 192.0.2.13"]
    assert restart == Unit(name="gpurack-pod-routes.service", verb="restart")
    assert decision.disruption is Disruption.NONE


def test_the_conflist_comes_last_because_with_it_the_node_turns_ready() -> None:
    first = bridge(pod_cidrs=MINE, others=OTHERS, found=Laid())
    assert [step.path for step in first.steps if isinstance(step, Write)][-1] == CONFLIST
    assert Reload() in first.steps


def test_another_pod_cidr_moves_every_pod_so_it_needs_a_drain() -> None:
    decision = bridge(pod_cidrs=("10.244.9.0/24",), others=OTHERS, found=LAID)
    assert decision.disruption is Disruption.DRAIN


@pytest.mark.parametrize("rival", ["05-cilium.conflist", "10-flannel.conflist"])
def test_left_overs_of_another_network_that_sort_first_are_refused_and_named(rival: str) -> None:
    decision = bridge(
        pod_cidrs=MINE, others=OTHERS, found=replace(LAID, configs=("10-gpurack.conflist", rival))
    )
    assert [problem.code for problem in decision.refused] == ["E-CNI-01"]
    assert rival in str(decision.refused[0].found)


@pytest.mark.parametrize("neighbour", ["87-podman.conflist", "99-loopback.conf"])
def test_what_sorts_after_ours_is_left_alone(neighbour: str) -> None:
    found = replace(LAID, configs=("10-gpurack.conflist", neighbour))
    assert not bridge(pod_cidrs=MINE, others=OTHERS, found=found).steps


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
