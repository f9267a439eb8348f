"""What gpurack asks of a Kubernetes API, asked of a real one: etcd and API server of the pinned version.

No rack is needed: both listen on loopback.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from gpurack.cluster import identity, kubeconfig, manifests, nodes, tokens
from gpurack.cluster.client import Client, Denied, Unreachable, connect
from gpurack.decide.certificates import pins
from gpurack.decide.node import Taint
from gpurack.errors import BadInput, Refused
from gpurack.lab import components

pytestmark = pytest.mark.lab
BINARIES = ("etcd", "kube-apiserver", "kubeadm")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the certificates and the admin kubeconfig of a cluster that serves."""
    home = tmp_path_factory.mktemp("cluster")
    binary = components.ensure(BINARIES, print)
    api, client, peer = free_port(), free_port(), free_port()
    config = home / "kubeadm.yaml"
    # kubeadm takes no loopback address, so the servers' real one is only among the names of the certificate.
    documents = [
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": "192.0.2.1", "bindPort": api},
            "nodeRegistration": {"name": "cp"},
        },
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "certificatesDir": str(home / "pki"),
            "kubernetesVersion": "v1.34.4",
            "apiServer": {"certSANs": ["127.0.0.1"]},
        },
    ]
    config.write_text(yaml.safe_dump_all(documents))
    for phase in (["certs", "all"], ["kubeconfig", "super-admin", f"--kubeconfig-dir={home}"]):
        command = [binary["kubeadm"], "init", "phase", *phase, f"--config={config}"]
        subprocess.run(command, check=True, capture_output=True)
    admin_conf = home / "super-admin.conf"
    admin_conf.write_text(admin_conf.read_text().replace("//192.0.2.1:", "//127.0.0.1:"))
    pki = home / "pki"
    etcd = [
        binary["etcd"],
        f"--data-dir={home / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
    ]
    server = [
        binary["kube-apiserver"],
        f"--etcd-servers=http://127.0.0.1:{client}",
        f"--secure-port={api}",
        "--bind-address=127.0.0.1",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.96.0.0/24",
    ]
    processes = []
    try:
        for command in (etcd, server):
            log = (home / f"{Path(command[0]).name}.log").open("w")
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        admin = connect(home / "super-admin.conf", scratch=home / "scratch")
        wait_ready(admin, processes)
        yield home
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)


def wait_ready(admin: Client, processes: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + 60
    while True:
        assert all(process.poll() is None for process in processes), "a server ended"
        try:
            admin.get("/readyz")
            admin.get("/api/v1/namespaces/kube-public")
        except (Unreachable, Denied):
            assert time.monotonic() < end, "the API server does not get ready"
            time.sleep(0.3)
        else:
            return


@pytest.fixture(scope="module")
def admin(served: Path) -> Client:
    return connect(served / "super-admin.conf", scratch=served / "scratch")


def make_node(client: Client, name: str) -> None:
    client.create(nodes.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def configured(served: Path, target: Path, **changes: str) -> Path:
    """The admin kubeconfig with changes to its cluster."""
    document = yaml.safe_load((served / "super-admin.conf").read_text())
    document["clusters"][0]["cluster"] |= changes
    target.write_text(yaml.safe_dump(document))
    return target


# ------------------------------------------------------------------------------------------- connection
def test_another_ca_is_told_apart_from_a_server_that_is_not_there(served: Path, tmp_path: Path) -> None:
    foreign = (served / "pki" / "front-proxy-ca.crt").read_bytes()
    wrong = configured(
        served, tmp_path / "wrong", **{"certificate-authority-data": base64.b64encode(foreign).decode()}
    )
    gone = configured(served, tmp_path / "gone", server=f"https://127.0.0.1:{free_port()}")
    for path, code in ((wrong, "E-CLUSTER-04"), (gone, "E-CLUSTER-02")):
        with pytest.raises(Unreachable) as caught:
            connect(path, scratch=tmp_path / "scratch").get("/version")
        assert caught.value.problems[0].code == code


def test_a_name_that_does_not_resolve_says_so(served: Path, tmp_path: Path) -> None:
    path = configured(served, tmp_path / "name", server="https://api.invalid:6443")
    with pytest.raises(Unreachable, match="does not resolve"):
        connect(path, scratch=tmp_path / "scratch").get("/version")


@pytest.mark.parametrize("content", ["", "- a", "a: [", "kind: Config"])
def test_what_is_no_kubeconfig_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(Refused, match="E-CLUSTER-01"):
        connect(path, scratch=tmp_path / "scratch")


def test_a_silent_server_is_given_up_in_bounded_time(served: Path, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        path = configured(served, tmp_path / "mute", server=f"https://127.0.0.1:{listener.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(Unreachable):
            connect(path, scratch=tmp_path / "scratch").get("/version")
        assert time.monotonic() - began < 60


def test_no_file_with_a_key_is_open_to_others(served: Path, admin: Client) -> None:
    admin.get("/version")
    scratch = served / "scratch"
    found = [scratch, *scratch.rglob("*")]
    assert len(found) > 3
    assert {path.stat().st_mode & 0o077 for path in found} == {0}


def test_key_files_of_a_killed_process_go_away(served: Path, tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    left = tmp_path / "scratch" / str(ended.pid)
    left.mkdir(parents=True)
    (left / "key").write_text("KEY")
    connect(served / "super-admin.conf", scratch=tmp_path / "scratch")
    assert [folder.name for folder in (tmp_path / "scratch").iterdir()] == [str(os.getpid())]


# ------------------------------------------------------------------------------------------- tokens
def test_a_token_expires_by_the_servers_clock_and_goes_away_when_told(admin: Client) -> None:
    token = tokens.mint(admin)
    (found,) = [known for known in tokens.known(admin) if known.id == token.id]
    assert found.expires is not None
    left = (found.expires - admin.now()).total_seconds()
    assert 0 < left <= 15 * 60
    assert token.value not in repr(token)
    assert token.value.partition(".")[2] not in repr(found)
    assert tokens.delete(admin, token.id)
    assert not tokens.delete(admin, token.id)
    assert token.id not in {known.id for known in tokens.known(admin)}


def test_only_tokens_of_ours_whose_process_is_gone_are_left_overs(admin: Client) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    mine, dead = tokens.mint(admin), tokens.mint(admin)
    theirs = tokens.mint(admin)
    host = socket.gethostname()
    for token, text in ((dead, f"{tokens.MARK} of {host}:{ended.pid}"), (theirs, "made by hand")):
        body = {"data": {"description": base64.b64encode(text.encode()).decode()}}
        admin.merge(f"{tokens.SECRETS}/bootstrap-token-{token.id}", body)
    assert [token.id for token in tokens.leftovers(tokens.known(admin))] == [dead.id]
    for token in (mine, dead, theirs):
        tokens.delete(admin, token.id)


# ------------------------------------------------------------------------------------------- nodes
def test_o_37_labels_of_kubernetes_own_domain_and_taints_converge_and_foreign_ones_stay(
    admin: Client,
) -> None:
    make_node(admin, "gpu-1")
    admin.merge(f"{nodes.NODES}/gpu-1", {"metadata": {"labels": {"theirs": "1"}}})
    labels = {"node-role.kubernetes.io/gpu": "", "app.kubernetes.io/component": "trainer"}
    taint = Taint("nvidia.com/gpu", "NoSchedule", "present")
    nodes.converge(admin, "gpu-1", labels=labels, taints=(taint,))
    found = nodes.every(admin)["gpu-1"]
    assert found.labels == labels | {"theirs": "1"}
    assert taint in found.taints
    before = found.resource_version
    nodes.converge(admin, "gpu-1", labels=labels, taints=(taint,))
    assert nodes.every(admin)["gpu-1"].resource_version == before
    nodes.converge(admin, "gpu-1", labels={}, taints=())
    found = nodes.every(admin)["gpu-1"]
    assert found.labels == {"theirs": "1"}
    assert taint not in found.taints


def test_all_pages_of_a_long_list_are_read(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"page-{number}" for number in range(5)}
    for name in names:
        make_node(admin, name)
    monkeypatch.setattr(nodes, "PAGE", "2")
    assert names <= nodes.every(admin).keys()


def test_waiting_in_vain_says_what_was_seen_last(admin: Client) -> None:
    make_node(admin, "gpu-9")
    for name, seen in (("gpu-9", "no condition yet"), ("gpu-0", "no such Node")):
        with pytest.raises(Refused) as caught:
            nodes.wait(admin, name, until=lambda node: node.ready, reason="it is Ready", deadline=0.1)
        assert seen in str(caught.value.problems[0].found)


# ------------------------------------------------------------------------------------------- identity
def test_a_cluster_says_who_it_is(served: Path, admin: Client) -> None:
    ca = (served / "pki" / "ca.crt").read_text()
    assert identity.identify(admin).server == ""
    info = {"clusters": [{"cluster": {"server": "https://api.example.test:6443"}}]}
    info["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    for namespace, name, data in (
        ("kube-public", "cluster-info", {"kubeconfig": yaml.safe_dump(info)}),
        ("kube-system", "kubeadm-config", {"ClusterConfiguration": "clusterName: test\n"}),
    ):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        admin.create(f"/api/v1/namespaces/{namespace}/configmaps", body)
    found = identity.identify(admin)
    assert (found.name, found.server, found.version) == ("test", "https://api.example.test:6443", "v1.34.4")
    assert found.pins == tuple(pins(ca))


def test_o_37_missing_rights_are_named_before_anything_is_tried(
    served: Path, admin: Client, tmp_path: Path
) -> None:
    assert identity.missing_rights(admin) == ()
    account = "/api/v1/namespaces/default/serviceaccounts"
    admin.create(account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}})
    answer = admin.create(
        f"{account}/reader/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    )
    document = yaml.safe_load((served / "super-admin.conf").read_text())
    document["users"][0]["user"] = {"token": answer["status"]["token"]}
    path = tmp_path / "reader"
    path.write_text(yaml.safe_dump(document))
    reader = connect(path, scratch=tmp_path / "scratch")
    assert "patch nodes" in identity.missing_rights(reader)
    assert "create secrets in kube-system" in identity.missing_rights(reader)
    with pytest.raises(Denied, match="may not do this"):
        nodes.every(reader)


# ------------------------------------------------------------------------------------------- kubeconfig
def test_the_kubeconfig_is_made_of_a_key_that_never_left_and_is_0600_from_the_start(
    served: Path, tmp_path: Path
) -> None:
    request = kubeconfig.request("gpurack:test")
    csr = tmp_path / "csr"
    csr.write_bytes(base64.b64decode(yaml.safe_load(request.manifest)["spec"]["request"]))
    pki = served / "pki"
    signed = subprocess.run(
        [
            "openssl",
            "x509",
            "-req",
            "-in",
            csr,
            "-CA",
            pki / "ca.crt",
            "-CAkey",
            pki / "ca.key",
            "-days",
            "365",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    path = tmp_path / "kubeconfig"
    old = os.umask(0)
    try:
        url = yaml.safe_load((served / "super-admin.conf").read_text())["clusters"][0]["cluster"]["server"]
        ca = (pki / "ca.crt").read_text()
        kubeconfig.write(path, cluster="test", url=url, ca=ca, certificate=signed, key=request.key)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [other.name for other in tmp_path.iterdir() if other.name.startswith(".")] == []
    assert "PRIVATE" not in request.manifest + repr(request)
    held = kubeconfig.held(path)
    assert held is not None
    assert (held.server, held.pins) == (url, pins(ca))
    who = connect(path, scratch=tmp_path / "scratch").create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )["status"]["userInfo"]
    assert who["username"] == "gpurack:test"
    assert kubeconfig.ADMINS in who["groups"]


def test_an_endpoint_name_that_the_controller_does_not_know_is_replaced_by_the_address() -> None:
    assert kubeconfig.server("api.invalid:6443", "192.0.2.11") == "https://192.0.2.11:6443"
    assert kubeconfig.server("localhost:6443", "192.0.2.11") == "https://localhost:6443"
    assert kubeconfig.server("[2001:db8::1]:6443", "192.0.2.11") == "https://[2001:db8::1]:6443"


# ------------------------------------------------------------------------------------------- manifests
def test_a_manifest_is_applied_once_per_content_with_kinds_that_it_brings_itself(
    admin: Client, tmp_path: Path
) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pools.cni.test"},
        "spec": {
            "group": "cni.test",
            "scope": "Cluster",
            "names": {"plural": "pools", "kind": "Pool"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cni", "namespace": "kube-system"},
    }
    path = tmp_path / "cni.yaml"
    path.write_text(yaml.safe_dump_all([crd, config | {"data": {"a": "1"}}]))
    digest = sha256(path.read_bytes()).hexdigest()
    assert not manifests.is_applied(admin, "cni", digest)
    manifests.apply(admin, "cni", manifests.checked(path, digest), digest)
    assert manifests.is_applied(admin, "cni", digest.upper())
    assert admin.get("/api/v1/namespaces/kube-system/configmaps/cni")["data"] == {"a": "1"}
    path.write_text(path.read_text() + "# one more line\n")
    with pytest.raises(BadInput, match="not the one that the site document names"):
        manifests.checked(path, digest)


def test_a_misspelt_field_of_a_manifest_is_refused_and_not_dropped(admin: Client) -> None:
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}}
    with pytest.raises(Denied, match=r"unknown|not declared"):
        manifests.apply(admin, "test", [wrong | {"dtaa": {}}], json.dumps({}))
