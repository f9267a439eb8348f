"""The site mirror in a network namespace of its own, asked by the real clients: apt, curl, skopeo.

It uses the machine's cache of components and leaves nothing behind: no process, no namespace.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpurack.errors import Refused
from gpurack.lab import components, images, mirror, packages, process, repository
from gpurack.lab.mirror import Mirror

pytestmark = pytest.mark.lab

NAMESPACE = "gpurack-test-mirror"  # not the rack's: both may be up
ADDRESS = "10.77.9.2"


def quiet(_: str) -> None:
    return


def namespace_up() -> None:
    for words in (
        ("netns", "add", NAMESPACE),
        ("-n", NAMESPACE, "link", "set", "lo", "up"),
        ("-n", NAMESPACE, "address", "add", f"{ADDRESS}/24", "dev", "lo"),
    ):
        subprocess.run(["ip", *words], check=True)


def namespace_down() -> None:
    subprocess.run(["ip", "netns", "delete", NAMESPACE], check=False, capture_output=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """A whole mirror, up and filled."""
    namespace_down()
    namespace_up()
    made = Mirror(
        namespace=NAMESPACE,
        address=ADDRESS,
        network="10.77.9.0/24",
        root=tmp_path_factory.mktemp("mirror"),
    )
    try:
        mirror.ensure(quiet, made)
        yield made
    finally:
        pids = mirror.running(made).values()
        mirror.stop(made)
        namespace_down()
        assert not [pid for pid in pids if process.alive(pid)]


def inside(site: Mirror, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = site.place.wrap([str(word) for word in words])
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def curl(site: Mirror, *words: str | Path) -> str:
    done = inside(site, "curl", "-sS", "--max-time", "20", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Apt:
    """apt with a root of its own, so that the machine's sources and state are neither used nor changed."""

    def __init__(self, site: Mirror, folder: Path) -> None:
        self.site, self.folder = site, folder
        for name in ("lists/partial", "cache/archives/partial", "state", "parts"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        rows = {
            "Dir::State": "state",
            "Dir::State::Lists": "lists",
            "Dir::State::status": "status",
            "Dir::Cache": "cache",
            "Dir::Etc::SourceParts": "parts",
        }
        text = "".join(f'{key} "{folder / value}";\n' for key, value in rows.items())
        text += (
            'Dir::Etc::SourceList "/dev/null";\nDir::Etc::Parts "/dev/null";\nAPT::Sandbox::User "root";\n'
        )
        (folder / "apt.conf").write_text(text)

    def source(self, name: str, uri: str, suite: str, key: Path, components_: str = "") -> Apt:
        rows = ["Types: deb", f"URIs: {uri}", f"Suites: {suite}", f"Signed-By: {key}"]
        rows += [f"Components: {components_}"] if components_ else []
        (self.folder / "parts" / f"{name}.sources").write_text("\n".join(rows) + "\n")
        return self

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        conf = str(self.folder / "apt.conf")
        command = self.site.place.wrap(["env", f"APT_CONFIG={conf}", "LC_ALL=C", *words])
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)


@pytest.fixture
def apt(site: Mirror, tmp_path: Path) -> Apt:
    base = f"http://{ADDRESS}/apt"
    return (
        Apt(site, tmp_path / "apt")
        .source("kubernetes", f"{base}/kubernetes", "/", site.keys / "kubernetes.asc")
        .source("containerd", f"{base}/containerd", "bookworm", site.keys / "containerd.asc", "stable")
    )


def test_apt_trusts_both_repositories_and_sees_both_revisions(apt: Apt) -> None:
    done = apt("apt-get", "update", "--error-on=any")
    assert done.returncode == 0, done.stderr
    for package in packages.PACKAGES:
        shown = apt("apt-cache", "madison", package.name).stdout
        assert [row.split("|")[1].strip() for row in shown.splitlines()] == list(reversed(package.versions))


def test_apt_fetches_exactly_the_pinned_version(apt: Apt) -> None:
    assert apt("apt-get", "update").returncode == 0
    assert apt("apt-get", "download", "kubelet=1.34.4-1.1", "containerd.io=2.2.9-1").returncode == 0
    assert (apt.folder / "kubelet_1.34.4-1.1_amd64.deb").is_file()
    assert (apt.folder / "containerd.io_2.2.9-1_amd64.deb").is_file()


def test_installing_kubelet_brings_the_plugins_and_removes_debians_containerd(apt: Apt) -> None:
    """Simulated by apt's own resolver: what the vendors' packages promise on a node (R60, R82)."""
    (apt.folder / "status").write_text(
        "".join(
            f"Package: {name}\nStatus: install ok installed\nVersion: 9\nArchitecture: amd64\n"
            "Maintainer: nobody\nDescription: x\n\n"
            for name in ("iptables", "mount", "util-linux", "containerd", "runc")
        )
    )
    apt("apt-get", "update")
    shown = apt("apt-get", "install", "--simulate", "-y", "kubelet", "containerd.io").stdout.splitlines()
    assert "Inst kubernetes-cni" in " ".join(line.partition(" (")[0] for line in shown)
    assert {line.split()[1] for line in shown if line.startswith("Remv ")} == {"containerd", "runc"}


def test_the_other_repositorys_key_is_not_accepted(site: Mirror, tmp_path: Path) -> None:
    apt = Apt(site, tmp_path / "apt")
    apt.source("k", f"http://{ADDRESS}/apt/kubernetes", "/", site.keys / "containerd.asc")
    done = apt("apt-get", "update", "--error-on=any")
    assert done.returncode == 100
    assert "NO_PUBKEY" in done.stderr


def test_an_expired_repository_is_refused_by_apt(site: Mirror, tmp_path: Path) -> None:
    signed_by = repository.key("kubernetes", site.root / "gnupg", site.keys)
    debs = packages.build(quiet, site.cache)["kubernetes"]
    until = "Mon, 01 Jan 2024 00:00:00 UTC"
    repository.publish(site.www / "apt" / "expired", debs, "flat", signed_by, valid_until=until)
    apt = Apt(site, tmp_path / "apt")
    apt.source("k", f"http://{ADDRESS}/apt/expired", "/", site.keys / "kubernetes.asc")
    done = apt("apt-get", "update", "--error-on=any")
    shutil.rmtree(site.www / "apt" / "expired")
    assert done.returncode == 100
    assert "is expired" in done.stderr


def test_the_vendors_paths_lead_to_the_same_repositories(site: Mirror, tmp_path: Path) -> None:
    apt = Apt(site, tmp_path / "apt")
    base = f"http://{ADDRESS}"
    apt.source("k", f"{base}/core:/stable:/v1.34/deb/", "/", site.keys / "kubernetes.asc")
    apt.source("d", f"{base}/linux/debian", "bookworm", site.keys / "containerd.asc", "stable")
    done = apt("apt-get", "update", "--error-on=any")
    assert done.returncode == 0, done.stderr
    released = curl(site, f"{base}/core:/stable:/v1.34/deb/Release.key")
    assert released == (site.keys / "kubernetes.asc").read_text()
    assert curl(site, f"{base}/linux/debian/gpg") == (site.keys / "containerd.asc").read_text()


def test_packages_through_the_proxy_are_logged_there(site: Mirror, apt: Apt) -> None:
    through = f"Acquire::http::Proxy=http://{ADDRESS}:{mirror.PROXY}"
    log = site.place.log / "proxy.log"
    before = log.read_text() if log.is_file() else ""
    done = apt("apt-get", "update", "--error-on=any", "-o", through)
    assert done.returncode == 0, done.stderr
    assert f"GET http://{ADDRESS}/apt/kubernetes/" in log.read_text()[len(before) :]


def test_the_registry_serves_every_image_under_the_digest_of_its_layout(site: Mirror) -> None:
    for image, layout in images.layouts(quiet, site.cache):
        done = inside(
            site,
            "skopeo",
            "inspect",
            "--tls-verify=false",
            "--format",
            "{{.Digest}}",
            f"docker://{site.registry}/{image.reference}",
        )
        assert done.stdout.strip() == images.manifest_digest(layout), done.stderr


def test_the_registry_behind_tls_wants_the_login_and_has_the_same_images(site: Mirror) -> None:
    url = f"https://{ADDRESS}:{mirror.REGISTRY_TLS}/v2/_catalog"
    ca = ("--cacert", site.keys / "registry-ca.pem")
    assert "UNAUTHORIZED" in curl(site, *ca, url)
    login = f"{site.login.user}:{site.login.password.read_text().strip()}"
    names = json.loads(curl(site, *ca, "--user", login, url))["repositories"]
    assert sorted(names) == sorted(image.name for image in images.IMAGES)
    assert inside(site, "curl", "-sS", url).returncode == 60  # not trusted without the lab's authority


def test_every_binary_of_the_images_runs_and_says_its_version(site: Mirror) -> None:
    said = {}
    found = components.ensure(components.everything(), quiet, site.cache)
    for name in (
        "kubelet",
        "kubeadm",
        "kube-apiserver",
        "kube-proxy",
        "kubectl",
        "containerd",
        "runc",
        "etcd",
    ):
        flag = {"kubeadm": ["version", "-o", "short"], "kubectl": ["version", "--client"]}.get(
            name, ["--version"]
        )
        done = subprocess.run([found[name], *flag], capture_output=True, text=True, check=True)
        said[name] = done.stdout
    for name in ("kubelet", "kubeadm", "kube-apiserver", "kube-proxy", "kubectl"):
        assert "v1.34.4" in said[name]
    assert "containerd.io v2.2.9" in said["containerd"]
    assert "runc version 1.3.6" in said["runc"]
    assert "libseccomp" in said["runc"]
    assert "etcd Version: 3.6.5" in said["etcd"]


def test_iptables_works_inside_the_image_of_kube_proxy(site: Mirror, tmp_path: Path) -> None:
    layout = next(path for image, path in images.layouts(quiet, site.cache) if image.name == "kube-proxy")
    manifest = images.manifest_digest(layout).removeprefix("sha256:")
    blobs = layout / "blobs/sha256"
    (layer,) = json.loads((blobs / manifest).read_text())["layers"]
    blob = blobs / str(layer["digest"]).removeprefix("sha256:")
    subprocess.run(["tar", "-xzf", blob, "-C", tmp_path], check=True)
    for words in (
        ("iptables", "-t", "nat", "-N", "KUBE-TEST"),
        ("iptables", "-t", "nat", "-A", "KUBE-TEST", "-m", "comment", "--comment", "x", "-j", "MASQUERADE"),
        ("ip6tables-save", "-t", "nat"),
        ("conntrack", "--version"),
        ("kube-proxy", "--version"),
    ):
        done = inside(site, "chroot", tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr)
    assert "-A KUBE-TEST" in inside(site, "chroot", tmp_path, "iptables-save", "-t", "nat").stdout


def test_ensure_again_changes_nothing(site: Mirror) -> None:
    def state() -> dict[str, tuple[int, int]]:
        found = [*site.www.rglob("*"), *site.keys.rglob("*"), *site.data.rglob("*")]
        return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in found}

    said: list[str] = []
    before, pids = state(), mirror.running(site)
    mirror.ensure(said.append, site)
    assert said == []
    assert state() == before
    assert mirror.running(site) == pids
    assert set(pids) == {"web", "proxy", "registry", "registry-tls"}


def test_a_killed_server_is_started_again_and_the_others_are_left(site: Mirror) -> None:
    before = mirror.running(site)
    os.kill(before["web"], signal.SIGKILL)
    assert process.gone(before["web"], 5)
    assert "web" not in mirror.running(site)
    said: list[str] = []
    mirror.start(said.append, site)
    after = mirror.running(site)
    assert said == [f"started web at {ADDRESS}"]
    assert after["web"] != before["web"]
    assert {k: v for k, v in after.items() if k != "web"} == {k: v for k, v in before.items() if k != "web"}


def test_a_half_pushed_image_is_pushed_again(site: Mirror) -> None:
    link = site.data / "docker/registry/v2/repositories/pause/_manifests/tags/3.10.1/current/link"
    link.unlink()
    said: list[str] = []
    mirror.fill(said.append, site)
    assert said == ["pushing pause:3.10.1"]
    assert link.is_file()


def test_a_namespace_made_anew_gets_new_servers(site: Mirror) -> None:
    """`down` and `up` of the rack, when a killed run left the servers in the namespace that is gone."""
    before = mirror.running(site)
    namespace_down()
    namespace_up()
    assert mirror.running(site) == {}
    mirror.start(quiet, site)
    after = mirror.running(site)
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())
    assert not [pid for pid in before.values() if process.alive(pid)]
    assert "Origin: gpurack lab" in curl(site, f"http://{ADDRESS}/apt/kubernetes/Release")


def test_a_port_that_is_taken_is_named_with_the_log(site: Mirror) -> None:
    other = replace(site, root=site.root / "other")
    with pytest.raises(Refused) as caught:
        mirror.start(quiet, other)
    (problem,) = caught.value.problems
    assert problem.code == "E-LAB-29"
    assert "address already in use" in (problem.found or "").lower()
    mirror.stop(other)
