"""The site mirror of the lab, as an air-gapped site runs one: packages, images, and how to reach them.

`ensure(progress)` is the one call that the rack makes: it builds what is missing, publishes the repositories,
starts the servers and fills the registry. What is there already is left alone.

    http://10.77.0.2/apt/kubernetes      flat, as pkgs.k8s.io      Suites: /         keys/kubernetes.asc
    http://10.77.0.2/apt/containerd      dists, as Docker's        bookworm stable   keys/containerd.asc
    http://10.77.0.2:5000                registry
    https://10.77.0.2:5443               the same registry behind TLS (keys/registry-ca.pem) and a login
    http://10.77.0.2:3128                forward proxy into the rack's network
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpurack import defaults
from gpurack.errors import Problem, Refused
from gpurack.lab import authority, daemons, images, packages, repository, servers, upstream
from gpurack.lab.components import BUILD_PACKAGES, CACHE
from gpurack.lab.daemons import Daemon, Place
from gpurack.lab.process import Progress
from gpurack.lab.recipes import KUBERNETES
from gpurack.lab.repository import Layout
from gpurack.lab.upstream import Upstream

WEB, REGISTRY, REGISTRY_TLS, PROXY = 80, 5000, 5443, 3128
USER = "rack"  # of the registry behind a login

# Debian packages that the mirror needs on the machine
DEBIAN_PACKAGES = (
    *BUILD_PACKAGES,
    *repository.REPOSITORY_PACKAGES,
    *images.IMAGE_PACKAGES,
    "docker-registry",
    "dpkg",
    "iproute2",
)

Upstreams = dict[packages.Repository, Upstream]

LAYOUTS: dict[packages.Repository, Layout] = {"kubernetes": "flat", "containerd": "dists"}
# where the vendors serve the same repositories: for what follows their documentation to the letter
VENDOR_PATHS = {"kubernetes": "core:/stable:/v{minor}/deb", "containerd": "linux/debian"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """+ namespace: network namespace that has `address`; + network: whom the proxy serves."""

    namespace: str = "gpurack-mirror"
    address: str = "10.77.0.2"
    network: str = "10.77.0.0/24"
    root: Path = Path(defaults.LAB_MIRROR)
    cache: Path = CACHE

    @property
    def keys(self) -> Path:
        """Public keys: `<repository>.asc`, `<repository>.fingerprint`, `registry-ca.pem`."""
        return self.root / "keys"

    @property
    def www(self) -> Path:
        return self.root / "www"

    @property
    def data(self) -> Path:
        """The registry's storage."""
        return self.root / "registry" / "data"

    @property
    def place(self) -> Place:
        return Place(namespace=self.namespace, run=self.root / "run", log=self.root / "log")

    @property
    def registry(self) -> str:
        return f"{self.address}:{REGISTRY}"

    @property
    def login(self) -> authority.Login:
        """User and password of the registry behind TLS, made on first use."""
        return authority.login(self.root / "registry", USER)


RACK = Mirror()


def ensure(progress: Progress, mirror: Mirror = RACK) -> None:
    """The whole mirror, up and filled. Raises Refused (E-LAB-20..29); a rerun goes on where it ended."""
    prepare(progress, mirror)
    start(progress, mirror)
    fill(progress, mirror)


def vendors(cache: Path = CACHE) -> Upstreams:
    """The vendors' repositories whose public key a person has put into <cache>/vendor-keys/<name>.asc."""
    minor = KUBERNETES.rpartition(".")[0]
    known: Upstreams = {
        "kubernetes": Upstream(
            uri=f"https://pkgs.k8s.io/core:/stable:/v{minor}/deb",
            suite="/",
            key=cache / "vendor-keys" / "kubernetes.asc",
        ),
        "containerd": Upstream(
            uri="https://download.docker.com/linux/debian",
            suite=repository.SUITE,
            component=repository.COMPONENT,
            key=cache / "vendor-keys" / "containerd.asc",
        ),
    }
    return {name: vendor for name, vendor in known.items() if vendor.key.is_file()}


def prepare(progress: Progress, mirror: Mirror = RACK, upstreams: Upstreams | None = None) -> None:
    """What needs no network of the rack: components, packages, repositories, image layouts.

    + upstreams: asked first for each exact version, which is built here where they lack it or do not
      answer; by default `vendors(cache)`
    """
    debs = packages.build(progress, mirror.cache)
    for name, vendor in (vendors(mirror.cache) if upstreams is None else upstreams).items():
        debs[name] = upstream.replace(debs[name], vendor, progress, mirror.cache)
    for name, layout in LAYOUTS.items():
        signed_by = repository.key(name, mirror.root / "gnupg", mirror.keys)
        folder = mirror.www / "apt" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        if repository.publish(folder, debs[name], layout, signed_by):
            progress(f"published {len(debs[name])} packages in apt/{name}")
        _alias(mirror.www, name)
    images.layouts(progress, mirror.cache)


def start(progress: Progress, mirror: Mirror = RACK) -> None:
    """Start what is not running; repairs what a killed run, or a namespace made anew, left."""
    mirror.www.mkdir(parents=True, exist_ok=True)
    started = daemons.start(mirror.place, _daemons(mirror))
    if started:
        progress(f"started {', '.join(started)} at {mirror.address}")


def fill(progress: Progress, mirror: Mirror = RACK) -> None:
    """Push what the registry lacks. It must be running."""
    for image, layout in images.layouts(progress, mirror.cache):
        if images.stored(mirror.data, image) != images.manifest_digest(layout):
            progress(f"pushing {image.reference}")
            images.push(layout, image.reference, mirror.registry, wrap=mirror.place.wrap)


def stop(mirror: Mirror = RACK) -> tuple[str, ...]:
    """Stop every server; names of those that were running. What they served stays."""
    return daemons.stop(mirror.place)


def running(mirror: Mirror = RACK) -> dict[str, int]:
    """Process ids by server name."""
    return daemons.running(mirror.place)


# ---------------------------------------------------------------------------------------------- details
def _daemons(mirror: Mirror) -> tuple[Daemon, ...]:
    code = hashlib.sha256(Path(servers.__file__).read_bytes()).hexdigest()  # changed code restarts them
    python = (sys.executable, "-m", "gpurack.lab.servers")
    at = ("--address", mirror.address, "--port")
    tls = authority.served(mirror.root / "registry", mirror.keys / "registry-ca.pem", mirror.address)
    login = mirror.login
    secured: dict[str, Any] = {
        "auth": {"htpasswd": {"realm": "gpurack lab", "path": str(login.htpasswd)}},
        "http": {"tls": {"certificate": str(tls.certificate), "key": str(tls.key)}},
    }
    return (
        Daemon(
            name="web",
            command=(*python, "files", *at, str(WEB), "--folder", str(mirror.www)),
            port=WEB,
            settings=code,
        ),
        Daemon(
            name="proxy",
            command=(*python, "proxy", *at, str(PROXY), "--allow", mirror.network),
            port=PROXY,
            settings=code,
        ),
        _registry(mirror, "registry", REGISTRY, {}),
        _registry(mirror, "registry-tls", REGISTRY_TLS, secured, str(tls.certificate.stat().st_mtime_ns)),
    )


def _registry(mirror: Mirror, name: str, port: int, extra: dict[str, Any], state: str = "") -> Daemon:
    binary = shutil.which("docker-registry")
    if binary is None:
        raise Refused(
            Problem(
                code="E-LAB-21",
                what="docker-registry is not on this machine; it serves the lab's images.",
                next="apt-get install docker-registry",
            )
        )
    mirror.data.mkdir(parents=True, exist_ok=True)
    settings = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": name == "registry"}},
        "storage": {"filesystem": {"rootdirectory": str(mirror.data)}, "delete": {"enabled": True}},
        "http": {"addr": f"{mirror.address}:{port}", "secret": _http_secret(mirror), **extra.get("http", {})},
        **{key: value for key, value in extra.items() if key != "http"},
    }
    path = mirror.root / "registry" / f"{name}.yml"
    text = yaml.safe_dump(settings, sort_keys=True)
    if not path.is_file() or path.read_text() != text:
        path.touch(mode=0o600)
        path.write_text(text)
    return Daemon(name=name, command=(binary, "serve", str(path)), port=port, settings=state)


def _http_secret(mirror: Mirror) -> str:
    """Signs upload sessions; kept, so that a restart does not change the configuration."""
    path = mirror.root / "registry" / "http-secret"
    if not path.is_file():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(16))
    return path.read_text()


def _alias(www: Path, name: packages.Repository) -> None:
    """The repository under the path of its vendor as well."""
    minor = KUBERNETES.rpartition(".")[0]
    alias = www / VENDOR_PATHS[name].format(minor=minor)
    alias.parent.mkdir(parents=True, exist_ok=True)
    if not alias.is_symlink():
        alias.symlink_to(www / "apt" / name)
