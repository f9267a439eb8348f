"""Types of the site document, and the view of one host that roles receive.

Names follow Kubernetes where it has them. Every model is frozen and refuses unknown keys. Values that a
person writes as quantities or durations are integers here (bytes, seconds).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from gpurack.site.fields import (
    Address,
    AddressTexts,
    Bytes,
    BytesOrPercent,
    Cidr,
    CpuList,
    Fingerprint,
    HostAddress,
    Network,
    Reference,
    fault,
)

__all__ = ["Address", "Network"]
Role = Literal["control-plane", "gpu"]


Port = Annotated[int, Field(ge=1, le=65535)]


class Model(BaseModel):
    """Frozen and strict: an unknown key is an error, not a hint."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# ---------------------------------------------------------------------------------------- how to get in
class Sudo(Model):
    """+ password: a reference (`env:`, `file:`, `command:`), or none for password-less sudo."""

    password: Reference | None = None


class Jump(Model):
    host: str
    user: str = "root"
    port: Port = 22


class Ssh(Model):
    """How the controller reaches a host. Host keys are checked strictly against `known_hosts`."""

    user: str = "root"
    port: Port = 22
    key: str | None = None
    known_hosts: str | None = None
    sudo: Sudo | None = None
    jump: Jump | None = None


# ---------------------------------------------------------------------------------------- what to run
class Packages(Model):
    """Exact Debian versions (R60, R82)."""

    kubelet: str
    kubeadm: str
    kubectl: str
    cri_tools: str
    kubernetes_cni: str
    containerd_io: str


class Images(Model):
    """Tags of the images that kubeadm pulls beside its own (R99)."""

    pause: str
    etcd: str
    coredns: str


class Stack(Model):
    """The pinned versions: one exact version each, always a string (O-56)."""

    kubernetes: str
    containerd: str
    packages: Packages
    images: Images


# ---------------------------------------------------------------------------------------- where from
class SigningKey(Model):
    """Exactly one of `file` and `url`.

    + file: ASCII-armoured public key; relative to the document, absolute once loaded
    + url: where the vendor publishes it; fetched by the controller and used only if the fingerprint fits
    + fingerprint: 40 hex digits (upper case once loaded) of its primary key
    """

    file: str | None = None
    url: str | None = None
    fingerprint: Fingerprint


class AptSource(Model):
    uri: str
    suite: str
    components: tuple[str, ...] = ()
    key: SigningKey


class Registry(Model):
    """Mirrors of one registry namespace, tried in order. Credentials are references, never values."""

    mirrors: tuple[str, ...] = ()
    ca: str | None = None
    username: str | None = None
    password: Reference | None = None


class Sources(Model):
    """+ apt: by purpose; + registries: by the name images carry; + proxy: for packages and images;
    + no_proxy: beside the cluster's own networks, which are always added; + ca_bundle: PEM file to trust."""

    kubernetes: AptSource
    containerd: AptSource
    registries: dict[str, Registry] = {}
    image_repository: str = "registry.k8s.io"
    proxy: str | None = None
    no_proxy: tuple[str, ...] = ()
    ca_bundle: str | None = None


# ---------------------------------------------------------------------------------------- the cluster
class Manifest(Model):
    file: str
    sha256: str


class ManifestCni(Model):
    manifest: Manifest


def _cni_kind(value: object) -> str:
    return "manifest" if isinstance(value, dict | ManifestCni) else "name"


Cni = Annotated[
    Annotated[Literal["bridge", "external"], Tag("name")] | Annotated[ManifestCni, Tag("manifest")],
    Discriminator(_cni_kind),
]


class Cluster(Model):
    """+ endpoint: `name:port` or `[v6]:port`; ends in the API certificate's SANs.
    + kubeconfig: of a cluster built by others; ours is kept in the site's state folder."""

    name: str
    endpoint: str
    pod_cidrs: tuple[Cidr, ...] = Field(min_length=1, max_length=2)
    service_cidrs: tuple[Cidr, ...] = Field(min_length=1, max_length=2)
    cni: Cni
    kubeconfig: str | None = None


# ---------------------------------------------------------------------------------------- pools
def _pci_id(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", value, re.ASCII):
        raise fault(
            "E-SITE-45", f"{value!r} is no PCI id", wanted="vendor:device in lower case, as 10de:2330"
        )
    return value


PciId = Annotated[str, AfterValidator(_pci_id)]


class Gpus(Model):
    """+ ids: PCI vendor:device, lower case; + per_numa_node: how many hang on each node, in order."""

    count: int = Field(ge=0)
    ids: tuple[PciId, ...] = ()
    per_numa_node: tuple[Annotated[int, Field(ge=0)], ...] = ()


class Disk(Model):
    """+ minimum: bytes that the file system at `path` must have in all."""

    path: str
    minimum: Bytes


class Hardware(Model):
    """What the pool says its servers are. Compared with what is found; never changed silently.

    + hugepages: how many pages of each size, as `{"1Gi": 64}`
    """

    gpus: Gpus
    numa_nodes: int | None = Field(default=None, ge=1)
    disks: tuple[Disk, ...] = ()
    hugepages: dict[Literal["2Mi", "1Gi"], Annotated[int, Field(ge=0)]] = {}
    iommu: Literal["off", "passthrough", "on"] | None = None


class Reserved(Model):
    """What is kept from pods. Bytes; `cpus` is a CPU list, else `cpus_per_numa_node` whole cores are taken.

    `reservedMemory` is never asked for: it is computed from these, to the byte (R2). `eviction_memory` is
    bytes, or a text such as `5%` that only memory policy None allows (R3).
    """

    cpus: CpuList | None = None
    cpus_per_numa_node: int | None = Field(default=None, ge=1)
    system_memory: Bytes = 0
    kube_memory: Bytes = 0
    eviction_memory: BytesOrPercent = 100 * 2**20

    @property
    def eviction_bytes(self) -> int:
        """The hard eviction threshold in bytes; `ValueError` if it is a percentage (never under Static)."""
        if isinstance(self.eviction_memory, str):
            raise ValueError(f"eviction at {self.eviction_memory} has no fixed number of bytes")  # noqa: TRY004
        return self.eviction_memory


class NumaPolicy(Model):
    """kubelet's resource managers, in kubelet's own spelling (R1-R14)."""

    cpu: Literal["none", "static"] = "none"
    cpu_options: dict[str, str] = {}
    memory: Literal["None", "Static"] = "None"
    topology: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
    topology_options: dict[str, str] = {}
    scope: Literal["container", "pod"] = "container"
    reserved: Reserved = Reserved()


class Taint(Model):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


def _split_taint(value: object) -> object:
    """`key=value:Effect` or `key:Effect`, as `kubectl taint` takes it."""
    if isinstance(value, dict | Taint):
        return value
    if not isinstance(value, str):
        raise fault("E-SITE-33", f"{value!r} is no taint", wanted="key=value:NoSchedule or key:NoSchedule")
    head, colon, effect = value.rpartition(":")
    if not colon:
        raise fault("E-SITE-33", f"{value!r} is no taint", wanted="key=value:NoSchedule or key:NoSchedule")
    key, _, text = head.partition("=")
    return {"key": key, "value": text, "effect": effect}


class Pool(Model):
    """A product tier: servers that are alike, and what they are for."""

    platform: str
    stage: Literal["lab", "canary", "production"] = "production"
    labels: dict[str, str] = {}
    taints: tuple[Annotated[Taint, BeforeValidator(_split_taint)], ...] = ()
    hardware: Hardware
    driver: Literal["operator", "host"] = "operator"
    numa: NumaPolicy = NumaPolicy()


class Rack(Model):
    """+ power: watts that the rack may draw; + position: free text such as `row 3, slot 7`."""

    power: int | None = Field(default=None, ge=1)
    cooling: Literal["air", "liquid"] | None = None
    position: str | None = None


# ---------------------------------------------------------------------------------------- one host
class HostEntry(Model):
    """One entry of `hosts` as written: a host, or a range of hosts such as `gpu-r07-[01:08]`.

    + address: an address, or a pair (dual stack) as a list or with a comma; a range is as long as the name's
    """

    name: str
    address: AddressTexts
    role: Role = "gpu"
    pool: str | None = None
    rack: str | None = None
    position: str | None = None


class Host(Model):
    """One host after ranges were unfolded. `addresses`: one, or one per family (dual stack); the first is
    where ssh goes and the first node IP."""

    name: str
    addresses: tuple[HostAddress, ...]
    role: Role
    pool: str | None = None
    rack: str | None = None
    position: str | None = None

    @property
    def address(self) -> str:
        return str(self.addresses[0])


class Site(Model):
    """The whole document, validated, with ranges unfolded.

    + file: absolute path of the document; every path in the site is absolute too
    + notes: what a person should know and that is no error, such as a lower-cased host name
    """

    name: str
    file: str
    accept: frozenset[str] = frozenset()
    ssh: Ssh = Ssh()
    stack: Stack
    sources: Sources
    cluster: Cluster
    pools: dict[str, Pool] = {}
    racks: dict[str, Rack] = {}
    hosts: tuple[Host, ...]
    notes: tuple[str, ...] = ()

    def node(self, name: str) -> Node:
        """The view of host `name`; `KeyError` if the document has no such host."""
        for host in self.hosts:
            if host.name == name:
                return Node(host=host, pool=self.pools[host.pool] if host.pool else None, site=self)
        raise KeyError(name)


class Node(Model):
    """What a role receives: one host, its pool, and the site around it."""

    host: Host
    pool: Pool | None
    site: Site

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def role(self) -> Role:
        return self.host.role
