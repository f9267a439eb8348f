from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import yaml

from gpurack.decide import control_plane, kubeadm
from gpurack.decide.certificates import certificates
from gpurack.decide.control_plane import MARK, WHOLE, Elsewhere, Held, clear, credential_is_due, init
from gpurack.decide.decision import Disruption, Remove, Transact, Write
from gpurack.decide.kubeadm import Kubeconfig, Traces
from gpurack.decide.kubeadm_config import GATED, INIT_CONFIG, Init, ignored
from tests.unit.certs import NOW, Authority

OURS = Authority()
CA = certificates(OURS.pem)[0]
CONF = Kubeconfig(server="https://192.0.2.11:6443", pins=frozenset({CA.pin}))
BARE = Traces(now=NOW, machine_id="a" * 32, product_uuid="")
SERVING = replace(BARE, kubelet_conf=CONF, ca=CA, parts=WHOLE, config=True)
UNUSED = Elsewhere()
WANTED = Init(
    cluster="prod",
    version="1.34.4",
    endpoint="[2001:db8::19e]:6443",
    name="cp-1",
    addresses=("192.0.2.11", "2001:db8::11"),
    sans=("192.0.2.11", "2001:db8::11", "2001:db8::19e", "cp-1"),
    pod_cidrs=("10.244.0.0/16", "fd00:10:244::/56"),
    service_cidrs=("10.96.0.0/16", "fd00:10:96::/112"),
    image_repository="registry.k8s.io",
    etcd_tag="3.6.5-0",
    coredns_tag="v1.12.1",
    description="gpurack join token of here:1",
)


def documents(wanted: Init) -> dict[str, dict]:
    write = next(
        s for s in init(wanted, BARE, UNUSED).steps if isinstance(s, Write) and s.path == INIT_CONFIG
    )
    assert write.mode == 0o600
    return {document["kind"]: document for document in yaml.safe_load_all(write.content)}


def test_a_bare_host_of_a_site_without_a_cluster_is_made_a_control_plane() -> None:
    decision = init(WANTED, BARE, UNUSED)
    first, _, last = decision.steps
    assert isinstance(first, Write)
    assert first.path == MARK
    assert isinstance(last, Transact)
    assert last.unit == "kubeadm-init"
    assert f"[ $rc -ne 0 ] || rm -f {MARK}" in last.script
    assert decision.disruption > Disruption.NONE


def test_the_secret_half_of_the_token_that_init_makes_is_printed_nowhere() -> None:
    last = init(WANTED, BARE, UNUSED).steps[-1]
    assert isinstance(last, Transact)
    assert "--skip-token-print" in last.script
    document = documents(WANTED)["InitConfiguration"]
    assert document["skipPhases"] == ["show-join-command"]
    assert document["bootstrapTokens"] == [{"description": WANTED.description, "ttl": "900s"}]


def test_the_init_documents_carry_endpoint_names_networks_and_tags() -> None:
    found = documents(WANTED)
    cluster, registration = found["ClusterConfiguration"], found["InitConfiguration"]["nodeRegistration"]
    assert cluster["controlPlaneEndpoint"] == "[2001:db8::19e]:6443"
    assert cluster["apiServer"]["certSANs"] == list(WANTED.sans)
    assert cluster["networking"]["podSubnet"] == "10.244.0.0/16,fd00:10:244::/56"
    assert cluster["etcd"]["local"]["imageTag"] == "3.6.5-0"
    assert cluster["dns"]["imageTag"] == "v1.12.1"
    assert cluster["kubernetesVersion"] == "v1.34.4"
    assert registration["kubeletExtraArgs"] == [{"name": "node-ip", "value": "192.0.2.11,2001:db8::11"}]
    assert "KubeProxyConfiguration" not in found
    assert "KubeProxyConfiguration" in documents(replace(WANTED, foreign_conntrack=True))


def test_a_control_plane_that_serves_is_left_alone() -> None:
    for known in (UNUSED, Elsewhere(recorded=frozenset({CA.pin}), answers=True)):
        assert not init(WANTED, SERVING, known).steps
        assert not init(WANTED, SERVING, known).refused
        assert not clear(SERVING, known).steps


def test_an_init_of_ours_that_was_cut_off_is_cleared_and_begun_again() -> None:
    found = replace(SERVING, unfinished_init=True)
    decision = clear(found, UNUSED)
    assert decision.steps == (kubeadm.RESET, Remove(path=MARK))
    assert decision.disruption is Disruption.DRAIN
    assert init(WANTED, found, UNUSED).steps[-1] == init(WANTED, BARE, UNUSED).steps[-1]


@pytest.mark.parametrize(
    "known", [Elsewhere(recorded=frozenset({CA.pin})), Elsewhere(answers=True)], ids=["recorded", "answering"]
)
def test_a_cluster_that_was_in_use_is_never_reset_in_spite_of_the_mark(known: Elsewhere) -> None:
    decision = clear(replace(SERVING, unfinished_init=True), known)
    assert [problem.code for problem in decision.refused] == ["E-INIT-01"]


@pytest.mark.parametrize("part", sorted(WHOLE))
def test_a_control_plane_that_lacks_a_part_and_is_not_ours_is_refused_and_not_reset(part: str) -> None:
    found = replace(SERVING, parts=WHOLE - {part})
    assert [problem.code for problem in init(WANTED, found, UNUSED).refused] == ["E-INIT-03"]
    assert not clear(found, UNUSED).steps


def test_a_bare_host_does_not_become_a_second_cluster_of_the_site() -> None:
    known = Elsewhere(recorded=frozenset({CA.pin}))
    assert [problem.code for problem in init(WANTED, BARE, known).refused] == ["E-INIT-02"]


def test_only_accepted_gates_make_preflight_errors_ignored_and_never_a_file_that_is_there() -> None:
    assert ignored(()) == ()
    assert ignored({"os-debian-12", "simulated-gpus"}) == ()
    assert ignored({"cgroup-v1", "shared-kernel"}) == ("SystemVerification",)
    every = {name for names in GATED.values() for name in names}
    assert not any(name.lower().startswith(("fileavailable", "all", "port")) for name in every)


SERVER = "https://192.0.2.11:6443"


@pytest.mark.parametrize(
    ("days", "server", "pin", "reason"),
    [
        (300, SERVER, CA.pin, None),
        (29, SERVER, CA.pin, "29 days left"),
        (-5, SERVER, CA.pin, "-5 days left"),
        (300, "https://192.0.2.99:6443", CA.pin, "points to https://192.0.2.99:6443"),
        (300, SERVER, "sha256:" + "0" * 64, "another CA"),
    ],
)
def test_the_controllers_kubeconfig_is_made_anew_when_it_does_not_fit_any_more(
    days: int, server: str, pin: str, reason: str | None
) -> None:
    held = Held(
        server=server,
        pins=frozenset({pin}),
        client=certificates(OURS.node("x", until=NOW + timedelta(days=days)))[0],
    )
    due = credential_is_due(held, server=SERVER, pins=frozenset({CA.pin}), now=NOW)
    assert due == reason if reason is None else reason in str(due)


def test_a_missing_kubeconfig_is_due() -> None:
    assert credential_is_due(None, server=SERVER, pins=frozenset({CA.pin}), now=NOW)


def test_the_request_for_a_credential_travels_by_standard_input() -> None:
    decision = control_plane.sign("gpurack-1", "REQUEST", reason="due")
    run = decision.steps[0]
    assert run.stdin == "REQUEST"  # type: ignore[union-attr]
    assert "REQUEST" not in run.script  # type: ignore[union-attr]
    assert decision.disruption is Disruption.NONE
