"""Images of the lab: one layer of static binaries each, written as OCI layouts and pushed to the registry.

A layout is cached by everything that decides its content. What the registry already has under the same tag
and digest is not pushed again.
"""

from __future__ import annotations

import gzip
import hashlib
import inspect
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpurack.errors import Problem, Refused
from gpurack.lab import components
from gpurack.lab.components import CACHE
from gpurack.lab.process import Progress
from gpurack.lab.recipes import COREDNS, ETCD, KUBERNETES, PAUSE, PROBE

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BIN = "/usr/local/bin"

# kube-proxy calls iptables and conntrack: Debian's, with the libraries they are linked with
IPTABLES = (
    "iptables",
    "conntrack",
    "libc6",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libxtables12",
)
# Debian's alternatives, as links; the nf_tables variant is what Debian and Ubuntu hosts use by default
IPTABLES_LINKS = {
    f"/usr/sbin/{family}{verb}": "xtables-nft-multi"
    for family in ("iptables", "ip6tables")
    for verb in ("", "-save", "-restore")
}
UNWANTED = ("usr/share", "usr/lib/x86_64-linux-gnu/gconv", "usr/include", "etc")

# Debian packages that this module needs
IMAGE_PACKAGES = ("skopeo",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image. + files: path in the image -> component; + debian: packages unpacked into its root."""

    name: str
    tag: str
    files: dict[str, str]
    entrypoint: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        return f"{self.name}:{self.tag}"


# Names and tags as kubeadm asks for them under its image repository (R99), and the test workload.
IMAGES: tuple[Image, ...] = (
    Image(name="pause", tag=PAUSE, files={"/pause": "pause"}, entrypoint=("/pause",)),
    *(
        Image(name=name, tag=f"v{KUBERNETES}", files={f"{BIN}/{name}": name}, entrypoint=(f"{BIN}/{name}",))
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
    Image(
        name="kube-proxy",
        tag=f"v{KUBERNETES}",
        files={f"{BIN}/kube-proxy": "kube-proxy"},
        debian=IPTABLES,
        links=IPTABLES_LINKS,
    ),
    Image(name="etcd", tag=f"{ETCD}-0", files={f"{BIN}/etcd": "etcd", f"{BIN}/etcdctl": "etcdctl"}),
    Image(
        name="coredns/coredns",
        tag=f"v{COREDNS}",
        files={"/coredns": "coredns"},
        entrypoint=("/coredns",),
    ),
    Image(
        name="gpurack-lab/probe",
        tag=PROBE,
        files={"/probe": "probe"},
        entrypoint=("/probe",),
    ),
    Image(
        name="gpurack-lab/gpusim",
        tag=PROBE,
        files={"/gpusim": "gpusim"},
        entrypoint=("/gpusim",),
    ),
)


def layouts(progress: Progress, cache: Path = CACHE) -> tuple[tuple[Image, Path], ...]:
    """An OCI layout for every image, written where the cache lacks it.

    Raises Refused: what `components.ensure` raises; E-LAB-27 when Debian's packages cannot be fetched.
    """
    binaries = components.ensure({name for image in IMAGES for name in image.files.values()}, progress, cache)
    made = []
    for image in IMAGES:
        target = cache / "images" / f"{image.name.replace('/', '-')}-{_digest(image, binaries)}"
        if not target.is_dir():
            progress(f"writing image {image.reference}")
            _write(image, binaries, target, cache)
        made.append((image, target))
    return tuple(made)


Wrap = Callable[[list[str]], list[str]]


def push(layout: Path, reference: str, registry: str, *, wrap: Wrap = lambda words: words) -> None:
    """Copy a layout to `registry`/`reference`. + wrap: puts the command into a network namespace."""
    if shutil.which("skopeo") is None:
        raise Refused(
            Problem(
                code="E-LAB-21",
                what="skopeo is not on this machine; the lab's images are pushed with it.",
                next=f"apt-get install {' '.join(IMAGE_PACKAGES)}",
            )
        )
    words = ["skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests"]
    words.append("--dest-tls-verify=false")
    done = subprocess.run(
        wrap([*words, f"oci:{layout}", f"docker://{registry}/{reference}"]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Refused(
            Problem(
                code="E-LAB-28",
                what=f"Image {reference} could not be pushed to {registry}.",
                found=(done.stderr.strip().splitlines() or ["no message"])[-1],
                next="See the registry's log with `gpurack lab logs mirror`, and run the same command again.",
            )
        )


def manifest_digest(layout: Path) -> str:
    """The digest under which a registry serves this layout."""
    return str(json.loads((layout / "index.json").read_text())["manifests"][0]["digest"])


def stored(data: Path, image: Image) -> str | None:
    """The digest that a registry's storage folder has for this tag, or none."""
    repository = data / "docker/registry/v2/repositories" / image.name
    link = repository / "_manifests/tags" / image.tag / "current/link"
    return link.read_text().strip() if link.is_file() else None


# --------------------------------------------------------------------------------------------- writing
def _digest(image: Image, binaries: dict[str, Path]) -> str:
    parts = [json.dumps(asdict(image), sort_keys=True)]
    parts += [str(UNWANTED), *(inspect.getsource(made_by) for made_by in (_write, _tar, _unpack_debian))]
    parts += [binaries[name].parent.name for name in image.files.values()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _write(image: Image, binaries: dict[str, Path], target: Path, cache: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".image-") as scratch:
        root, out = Path(scratch) / "root", Path(scratch) / "out"
        root.mkdir()
        (out / "blobs/sha256").mkdir(parents=True)
        if image.debian:
            _unpack_debian(image.debian, root, cache)
        raw = Path(scratch) / "layer.tar"
        _tar(image, root, binaries, raw)
        with raw.open("rb") as file:
            uncompressed = hashlib.file_digest(file, "sha256").hexdigest()
        packed = Path(scratch) / "layer.tar.gz"
        with (
            raw.open("rb") as source,
            packed.open("wb") as sink,
            gzip.GzipFile("", "wb", 1, sink, mtime=0) as zipped,
        ):
            shutil.copyfileobj(source, zipped, 1 << 20)
        layer = _blob(out, packed, "application/vnd.oci.image.layer.v1.tar+gzip")
        settings: dict[str, object] = {"Env": [f"PATH={PATH}"], "WorkingDir": "/"}
        if image.entrypoint:
            settings["Entrypoint"] = list(image.entrypoint)
        config = _json_blob(
            out,
            {
                "architecture": "amd64",
                "os": "linux",
                "config": settings,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{uncompressed}"]},
            },
            "application/vnd.oci.image.config.v1+json",
        )
        kind = "application/vnd.oci.image.manifest.v1+json"
        content = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}
        manifest = _json_blob(out, content, kind)
        (out / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
        (out / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        out.rename(target)


def _tar(image: Image, root: Path, binaries: dict[str, Path], raw: Path) -> None:
    """Sorted, owned by root, without times: the same input gives the same digest."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(raw, "w", format=tarfile.GNU_FORMAT) as tar:
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(scratch)
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if not any(name == folder or name.startswith(f"{folder}/") for folder in UNWANTED):
                tar.add(path, name, recursive=False, filter=plain)
        for name, target in sorted(image.links.items()):
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type, link.linkname, link.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(link)
        for name, component in sorted(image.files.items()):
            content = binaries[component].read_bytes()
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))


def _unpack_debian(names: tuple[str, ...], root: Path, cache: Path) -> None:
    """Fetch by the machine's own apt, which checks signatures, and unpack without installing."""
    folder = cache / "debian"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not list(folder.glob(f"{name}_*.deb")):
            _command(["apt-get", "download", "-q", name], folder, name)
        _command(["dpkg-deb", "-x", str(max(folder.glob(f"{name}_*.deb"))), str(root)], folder, name)


def _command(words: list[str], folder: Path, package: str) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(
            Problem(
                code="E-LAB-27",
                what=f"The Debian package {package} could not be fetched for the image of kube-proxy.",
                found=(done.stderr.strip().splitlines() or ["no message"])[-1],
                next="apt-get update, and run the same command again.",
            )
        )


def _blob(out: Path, path: Path, kind: str) -> dict[str, object]:
    with path.open("rb") as file:
        name = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    path.rename(out / "blobs/sha256" / name)
    return {"mediaType": kind, "digest": f"sha256:{name}", "size": size}


def _json_blob(out: Path, content: object, kind: str) -> dict[str, object]:
    path = out / "scratch.json"
    path.write_text(json.dumps(content, sort_keys=True))
    return _blob(out, path, kind)
