"""The real script on a made-up root, and its parser on what it says."""

from __future__ import annotations

import base64
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from gpurack.decide.certificates import Certificate, Damaged, certificates, pins
from gpurack.decide.control_plane import MARK, WHOLE
from gpurack.decide.kubeadm import Kubeconfig, Traces
from gpurack.decide.kubeadm_config import JOIN_CONFIG
from gpurack.facts.kubeadm import KubeadmTraces, parse
from tests.unit.certs import NOW, Authority

OURS = Authority()
PEM = "var/lib/kubelet/pki/kubelet-client-current.pem"


def conf(**user: str) -> str:
    ca = base64.b64encode(OURS.pem.encode()).decode()
    return yaml.safe_dump(
        {
            "clusters": [
                {"cluster": {"certificate-authority-data": ca, "server": "https://api.example.test:6443"}}
            ],
            "users": [{"user": user}],
        }
    )


def look(root: Path) -> tuple[str, Traces]:
    """Run the script with its absolute paths moved below `root`."""
    script = KubeadmTraces().command()
    for place in ("/etc/", "/var/", "/run/", "/sys/"):
        script = script.replace(f" {place}", f" {root}{place}")
    answer = subprocess.run(["dash", "-c", script], capture_output=True, text=True, check=True).stdout
    return answer, parse(answer)


def lay(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_a_bare_host_shows_nothing(tmp_path: Path) -> None:
    _, found = look(tmp_path)
    assert not found.member
    assert (found.kubelet_conf, found.bootstrap_conf, found.client, found.ca) == (None, None, None, None)
    assert not found.parts
    assert (found.config, found.unfinished_init, found.leftover) == (False, False, False)


def test_a_joined_host_is_read_whole_and_no_secret_leaves_it(tmp_path: Path) -> None:
    pem = OURS.node("gpu-1", until=NOW + timedelta(days=200))
    key = base64.b64encode(b"PRIVATE").decode()
    lay(
        tmp_path,
        {
            "etc/kubernetes/kubelet.conf": conf(**{"client-key-data": key}),
            "etc/kubernetes/bootstrap-kubelet.conf": conf(token="abcdef.0123456789abcdef"),
            "etc/kubernetes/pki/ca.crt": OURS.pem,
            "etc/machine-id": "b" * 32,
            PEM: pem,
            "var/lib/kubelet/config.yaml": "",
        },
    )
    answer, found = look(tmp_path)
    assert found.kubelet_conf == Kubeconfig(server="https://api.example.test:6443", pins=pins(OURS.pem))
    assert found.client == certificates(pem)[0]
    assert found.node_name == "gpu-1"
    assert isinstance(found.ca, Certificate)
    assert found.machine_id == "b" * 32
    assert found.config
    assert "PRIVATE KEY" in pem
    for secret in ("PRIVATE KEY", key, "0123456789abcdef"):
        assert secret not in answer


def test_a_control_plane_is_known_by_its_parts(tmp_path: Path) -> None:
    manifests = {name for name in WHOLE if name.startswith("kube-") or name == "etcd"}
    lay(tmp_path, {f"etc/kubernetes/manifests/{name}.yaml": "" for name in manifests})
    lay(tmp_path, {"etc/kubernetes/admin.conf": "", "etc/kubernetes/pki/ca.key": "KEY", MARK.strip("/"): ""})
    answer, found = look(tmp_path)
    assert found.parts == WHOLE
    assert found.unfinished_init
    assert "KEY" not in answer


def test_o_39_a_dangling_link_and_a_file_without_a_certificate_have_messages_of_their_own(
    tmp_path: Path,
) -> None:
    (tmp_path / PEM).parent.mkdir(parents=True)
    (tmp_path / PEM).symlink_to("kubelet-client-2026.pem")
    _, found = look(tmp_path)
    assert found.client == Damaged(reason="the client certificate is a link to a file that is gone")
    (tmp_path / PEM).unlink()
    lay(tmp_path, {PEM: "-----BEGIN EC PRIVATE KEY-----\nxx\n-----END EC PRIVATE KEY-----\n"})
    _, found = look(tmp_path)
    assert found.client == Damaged(reason="the client certificate file holds no certificate")


@pytest.mark.parametrize(
    "content", ["", "a: [", "clusters: []", "clusters: [{cluster: {server: x}}]", "\x00"]
)
def test_a_kubeconfig_that_a_power_loss_cut_is_damaged_and_not_absent(tmp_path: Path, content: str) -> None:
    lay(tmp_path, {"etc/kubernetes/kubelet.conf": content})
    _, found = look(tmp_path)
    assert isinstance(found.kubelet_conf, Damaged)
    assert found.member


def test_a_kubeconfig_that_names_its_ca_by_file_is_whole(tmp_path: Path) -> None:
    """Other installers write it so: read as damaged, a foreign member would be reset."""
    text = """
clusters: [{name: c, cluster: {server: "https://other.test:6443", certificate-authority: /etc/ca.pem}}]
users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}}]
"""
    lay(tmp_path, {"etc/kubernetes/kubelet.conf": text})
    _, found = look(tmp_path)
    assert found.kubelet_conf == Kubeconfig(server="https://other.test:6443", pins=frozenset(), embedded=None)


def test_a_token_file_of_a_killed_run_is_seen(tmp_path: Path) -> None:
    lay(tmp_path, {JOIN_CONFIG.strip("/"): "token: abcdef.0123456789abcdef"})
    answer, found = look(tmp_path)
    assert found.leftover
    assert "abcdef" not in answer


@pytest.mark.parametrize(
    "text", ["", "now=\nmachine_id=\nproduct_uuid=", "now=1\nmachine_id=", "now=1\nnoise"]
)
def test_half_an_answer_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text)
