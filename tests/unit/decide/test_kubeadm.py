"""The table of R49, and the field's ways into it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide import kubeadm
from gpurack.decide.certificates import Certificate, Damaged, certificates
from gpurack.decide.decision import Disruption, Remove, Transact, Unit, Write
from gpurack.decide.kubeadm import Goal, Kubeconfig, Standing, Traces, judge, standing
from gpurack.decide.kubeadm_config import CRI_SOCKET, JOIN_CONFIG, Join
from gpurack.decide.node import NodeInApi, Taint
from tests.unit.certs import NOW, Authority

OURS, THEIRS = Authority(), Authority("their-ca")
CA = certificates(OURS.pem)[0]
FOREIGN_CA = certificates(THEIRS.pem)[0]
UUID, OTHER_UUID = "3f1c9a52-7d04-4e8b-9b6e-0a55c1d2e3f4", "8d2b7c10-44aa-4b0e-8f11-77c6d5e4f3a2"
GOAL = Goal(
    name="gpu-07", address="192.0.2.41", servers=("https://api.example.test:6443",), pins=frozenset({CA.pin})
)
CONF = Kubeconfig(server="https://api.example.test:6443", pins=frozenset({CA.pin}))
BARE = Traces(now=NOW, machine_id="b" * 32, product_uuid=UUID)


def client(*, days: int, name: str = "gpu-07") -> Certificate:
    return certificates(OURS.node(name, until=NOW + timedelta(days=days)))[0]


JOINED = replace(
    BARE, kubelet_conf=CONF, client=client(days=200), ca=CA, config=True, listening=frozenset({10250})
)
NODE = NodeInApi(
    name="gpu-07",
    ready=True,
    machine_id="b" * 32,
    system_uuid=UUID,
    kubelet_version="v1.34.4",
    addresses=("192.0.2.41",),
    labels={},
)
AWAY = replace(NODE, ready=False)
WANTED = Join(
    name="gpu-07",
    addresses=("192.0.2.41",),
    endpoint="api.example.test:6443",
    token="abcdef.0123456789abcdef",
    pins=(CA.pin,),
)

TABLE = [
    pytest.param(BARE, Standing.FRESH, "join", id="never joined"),
    pytest.param(
        replace(BARE, bootstrap_conf=CONF, ca=CA), Standing.BOOTSTRAPPING, "reset", id="a, killed early"
    ),
    pytest.param(
        replace(JOINED, bootstrap_conf=CONF, client=None),
        Standing.BOOTSTRAPPING,
        "reset",
        id="a, killed late",
    ),
    pytest.param(
        replace(JOINED, bootstrap_conf=CONF, client=client(days=-1)),
        Standing.BOOTSTRAPPING,
        "reset",
        id="a, with an old certificate",
    ),
    pytest.param(
        replace(JOINED, bootstrap_conf=CONF),
        Standing.MEMBER,
        "none",
        id="killed when kubelet had come through",
    ),
    pytest.param(replace(JOINED, client=None), Standing.UNSIGNED, "reset", id="b, no certificate"),
    pytest.param(
        replace(JOINED, client=Damaged(reason="a link to a file that is gone")),
        Standing.UNSIGNED,
        "reset",
        id="b, dangling link",
    ),
    pytest.param(replace(BARE, config=True), Standing.UNBOUND, "reset", id="c, config.yaml alone"),
    pytest.param(replace(BARE, ca=CA), Standing.UNBOUND, "reset", id="c, our CA alone"),
    pytest.param(replace(JOINED, kubelet_conf=None), Standing.UNBOUND, "reset", id="c, no kubelet.conf"),
    pytest.param(replace(JOINED, client=client(days=-23)), Standing.EXPIRED, "reset", id="g, expired"),
    pytest.param(
        replace(JOINED, kubelet_conf=Damaged(reason="empty")),
        Standing.DAMAGED,
        "reset",
        id="cut by a power loss",
    ),
    pytest.param(JOINED, Standing.MEMBER, "none", id="joined"),
    pytest.param(replace(BARE, ca=FOREIGN_CA), Standing.FOREIGN, "none", id="e, a foreign CA alone"),
    pytest.param(
        replace(JOINED, ca=FOREIGN_CA), Standing.FOREIGN, "none", id="e, stale CA beside kubelet.conf"
    ),
    pytest.param(
        replace(JOINED, kubelet_conf=replace(CONF, pins=frozenset({FOREIGN_CA.pin}))),
        Standing.FOREIGN,
        "none",
        id="f, other CA in kubelet.conf",
    ),
    pytest.param(
        replace(BARE, bootstrap_conf=replace(CONF, server="https://old.example.test:6443")),
        Standing.FOREIGN,
        "none",
        id="f, half-joined elsewhere",
    ),
]


@pytest.mark.parametrize(("found", "place", "action"), TABLE)
def test_every_row_of_r49_has_its_standing_and_its_action(
    found: Traces, place: Standing, action: str
) -> None:
    assert standing(found, GOAL) is place
    verdict = judge(found, GOAL, NODE if place is Standing.MEMBER else None)
    assert verdict.action == action
    assert bool(verdict.refused) == (place is Standing.FOREIGN)


optional = st.none() | st.just(Damaged(reason="damaged"))


@given(
    kubelet_conf=optional | st.just(CONF),
    bootstrap_conf=optional | st.just(CONF),
    held=optional | st.just(client(days=200)) | st.just(client(days=-1)),
    ca=optional | st.sampled_from([CA, FOREIGN_CA]),
    config=st.booleans(),
    node=st.sampled_from([None, NODE, AWAY, replace(NODE, machine_id="c" * 32, system_uuid=OTHER_UUID)]),
)
def test_any_traces_have_one_verdict_and_nothing_complete_or_foreign_is_ever_reset(
    kubelet_conf: object,
    bootstrap_conf: object,
    held: object,
    ca: object,
    config: bool,
    node: NodeInApi | None,
) -> None:
    found = replace(
        BARE,
        kubelet_conf=kubelet_conf,  # type: ignore[arg-type]
        bootstrap_conf=bootstrap_conf,  # type: ignore[arg-type]
        client=held,  # type: ignore[arg-type]
        ca=ca,  # type: ignore[arg-type]
        config=config,
    )
    verdict = judge(found, GOAL, node)
    steps = kubeadm.join(verdict, found, WANTED).steps + kubeadm.clear(verdict).steps
    if verdict.standing in (Standing.MEMBER, Standing.FOREIGN, Standing.FRESH) or verdict.refused:
        assert kubeadm.RESET not in steps
    if verdict.refused:
        assert not steps


def test_a_half_state_is_reset_as_a_class_that_a_live_host_owes_and_then_joined() -> None:
    found = replace(BARE, bootstrap_conf=CONF)
    verdict = judge(found, GOAL, None)
    assert kubeadm.clear(verdict).steps == (kubeadm.RESET,)
    assert kubeadm.clear(verdict).disruption is Disruption.DRAIN
    assert [type(step) for step in kubeadm.join(verdict, found, WANTED).steps] == [Remove, Write, Transact]


def test_a_bare_host_and_a_member_have_nothing_to_clear() -> None:
    assert not kubeadm.clear(judge(BARE, GOAL, None)).steps
    assert not kubeadm.clear(judge(JOINED, GOAL, NODE)).steps


def test_the_token_is_in_one_secret_file_that_goes_away_with_the_join_whatever_happens() -> None:
    decision = kubeadm.join(judge(BARE, GOAL, None), BARE, WANTED)
    _, write, transact = decision.steps
    assert isinstance(write, Write)
    assert isinstance(transact, Transact)
    assert (write.path, write.mode, write.secret) == (JOIN_CONFIG, 0o600, True)
    assert WANTED.token in write.content
    assert WANTED.token not in f"{transact} {decision.reason} {WANTED!r}"
    assert transact.script.startswith(f"trap 'rm -f {JOIN_CONFIG}' EXIT;")


@pytest.mark.parametrize(
    ("found", "path"),
    [
        (replace(JOINED, leftover=True), JOIN_CONFIG),
        (replace(JOINED, bootstrap_conf=CONF), "/etc/kubernetes/bootstrap-kubelet.conf"),
    ],
)
def test_what_a_killed_join_left_on_a_member_is_removed_and_disturbs_nobody(found: Traces, path: str) -> None:
    verdict = judge(found, GOAL, NODE)
    decision = kubeadm.join(verdict, found, WANTED)
    assert decision.steps == (Remove(path=path),)
    assert decision.disruption is Disruption.NONE
    assert not kubeadm.clear(verdict).steps


def test_the_network_of_an_earlier_life_goes_away_before_the_node_can_turn_ready() -> None:
    decision = kubeadm.join(judge(BARE, GOAL, None), BARE, WANTED)
    assert decision.steps[0] == Remove(path="/etc/cni/net.d/10-gpurack.conflist")


def test_a_member_whose_node_was_deleted_registers_again_by_a_restart() -> None:
    decision = kubeadm.join(judge(JOINED, GOAL, None), JOINED, WANTED)
    assert decision.steps == (Unit(name="kubelet.service", verb="restart"),)
    assert decision.disruption is Disruption.KUBELET_RESTART


def test_a_joined_host_needs_nothing() -> None:
    decision = kubeadm.join(judge(JOINED, GOAL, NODE), JOINED, WANTED)
    assert not decision.steps
    assert decision.reason == "already joined"


def test_o_30_a_host_may_hold_either_ca_during_a_rotation() -> None:
    goal = replace(GOAL, pins=frozenset({CA.pin, FOREIGN_CA.pin}))
    assert standing(JOINED, goal) is Standing.MEMBER
    assert standing(replace(JOINED, ca=FOREIGN_CA), goal) is Standing.MEMBER
    assert standing(JOINED, replace(GOAL, pins=frozenset({"sha256:" + "1" * 64}))) is Standing.FOREIGN


def test_o_32_an_ipv6_endpoint_survives_the_yaml_round_trip_with_its_brackets() -> None:
    wanted = replace(WANTED, endpoint="[2001:db8::19e]:6443", addresses=("192.0.2.15", "2001:db8::1ea"))
    decision = kubeadm.join(judge(BARE, GOAL, None), BARE, wanted)
    write = next(step for step in decision.steps if isinstance(step, Write))
    document = yaml.safe_load(write.content)
    assert document["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "[2001:db8::19e]:6443"
    (argument,) = document["nodeRegistration"]["kubeletExtraArgs"]
    assert argument == {"name": "node-ip", "value": "192.0.2.15,2001:db8::1ea"}


def test_the_join_names_socket_node_pins_and_taints_and_no_labels() -> None:
    wanted = replace(
        WANTED, taints=(Taint("nvidia.com/gpu", "NoSchedule", "present"),), ignore=("SystemVerification",)
    )
    decision = kubeadm.join(judge(BARE, GOAL, None), BARE, wanted)
    write = next(step for step in decision.steps if isinstance(step, Write))
    document = yaml.safe_load(write.content)
    registration = document["nodeRegistration"]
    assert registration["criSocket"] == CRI_SOCKET
    assert registration["name"] == "gpu-07"
    assert registration["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert document["discovery"]["bootstrapToken"]["caCertHashes"] == [CA.pin]
    assert "node-labels" not in write.content


O_33_OTHER_CLUSTER = "https://old-api.example.test:6443"


def test_o_33_left_overs_have_three_different_answers() -> None:
    joined = judge(JOINED, GOAL, NODE)
    elsewhere = judge(replace(JOINED, kubelet_conf=replace(CONF, server=O_33_OTHER_CLUSTER)), GOAL, None)
    half = judge(replace(JOINED, kubelet_conf=None), GOAL, None)
    assert (joined.action, joined.reason) == ("none", "already joined")
    assert O_33_OTHER_CLUSTER in str(elsewhere.refused[0])
    assert "https://api.example.test:6443" in str(elsewhere.refused[0])
    assert half.action == "reset"


def test_o_33_a_foreign_process_on_kubelets_port_stops_a_fresh_join() -> None:
    verdict = judge(replace(BARE, listening=frozenset({22, 10250})), GOAL, None)
    assert verdict.refused[0].code == "E-JOIN-06"


def test_o_34_a_ready_node_of_that_name_on_another_machine_is_refused_and_both_are_shown() -> None:
    taken = replace(NODE, machine_id="a" * 32, system_uuid=OTHER_UUID, addresses=("192.0.2.40",))
    text = str(judge(BARE, GOAL, taken).refused[0])
    assert all(part in text for part in ("192.0.2.40", OTHER_UUID, UUID))


@pytest.mark.parametrize(
    ("node", "refused"),
    [
        pytest.param(AWAY, None, id="same machine, NotReady: joins again"),
        pytest.param(replace(AWAY, machine_id="a" * 32), None, id="re-installed: same product UUID"),
        pytest.param(
            replace(AWAY, machine_id="a" * 32, system_uuid=UUID.upper()), None, id="in other letters"
        ),
        pytest.param(NODE, "E-JOIN-03", id="same machine, still Ready"),
        pytest.param(
            replace(AWAY, machine_id="a" * 32, system_uuid=OTHER_UUID), "E-JOIN-04", id="other machine"
        ),
    ],
)
def test_o_34_only_a_notready_node_of_the_same_machine_may_be_adopted(
    node: NodeInApi, refused: str | None
) -> None:
    verdict = judge(BARE, GOAL, node)
    assert [problem.code for problem in verdict.refused] == ([refused] if refused else [])


def test_o_35_a_placeholder_uuid_makes_no_two_machines_the_same() -> None:
    placeholder = "03000200-0400-0500-0006-000700080009"
    found = replace(BARE, product_uuid=placeholder)
    taken = replace(AWAY, machine_id="a" * 32, system_uuid=placeholder)
    assert judge(found, GOAL, taken).refused[0].code == "E-JOIN-04"


def test_o_38_a_certificate_of_another_name_is_refused_with_both_names() -> None:
    found = replace(JOINED, client=client(days=200, name="gpu-09.rack2.example.test"))
    assert found.node_name == "gpu-09.rack2.example.test"
    text = str(judge(found, GOAL, None).refused[0])
    assert "gpu-09.rack2.example.test" in text
    assert "system:node:gpu-07" in text


def test_o_39_an_expired_client_certificate_says_for_how_long_and_what_it_needs() -> None:
    verdict = judge(replace(JOINED, client=client(days=-23)), GOAL, AWAY)
    assert verdict.action == "reset"
    assert verdict.reason == "client certificate expired 23 days ago, no bootstrap file; needs a new token"


def test_o_39_a_certificate_that_runs_out_soon_is_a_note_with_the_days() -> None:
    verdict = judge(replace(JOINED, client=client(days=7)), GOAL, NODE)
    assert verdict.action == "none"
    assert "7 days left" in verdict.notes[0]
    assert not judge(JOINED, GOAL, NODE).notes


def test_an_adopted_node_that_is_cordoned_stays_so_and_is_named() -> None:
    verdict = judge(BARE, GOAL, replace(AWAY, unschedulable=True))
    assert verdict.joins
    assert "cordoned" in verdict.notes[0]
