"""Types of the site document, and the view of one host that roles receive.

Names follow Kubernetes where it has them. Every model is frozen and refuses unknown keys. Values that a
person writes as quantities or durations are integers here (bytes, seconds).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

from pydantic import BaseModel, ConfigDict

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Role = Literal["control-plane", "gpu"]


class Model(BaseModel):
    """Frozen and strict: an unknown key is an error, not a hint."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# ---------------------------------------------------------------------------------------- how to get in
class Sudo(Model):
    """+ password: a reference (`env:`, `file:`, `command:`), or none for password-less sudo."""

    password: str | None = None


class Jump(Model):
    host: str
    user: str = "root"
    port: int = 22


class Ssh(Model):
    """How the controller reaches a host. Host keys are checked strictly against `known_hosts`."""

    user: str = "root"
    port: int = 22
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
    """+ file: ASCII-armoured public key beside the document; + fingerprint: 40 hex digits of its key."""

    file: str
    fingerprint: str


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
    password: str | None = None


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


class Cluster(Model):
    """+ endpoint: `name:port` or `[v6]:port`; ends in the API certificate's SANs.
    + kubeconfig: of a cluster built by others; ours is kept in the site's state folder."""

    name: str
    endpoint: str
    pod_cidrs: tuple[Network, ...]
    service_cidrs: tuple[Network, ...]
    cni: Literal["bridge", "external"] | ManifestCni
    kubeconfig: str | None = None


# ---------------------------------------------------------------------------------------- pools
class Gpus(Model):
    """+ ids: PCI vendor:device, lower case; + per_numa_node: how many hang on each node, in order."""

    count: int
    ids: tuple[str, ...] = ()
    per_numa_node: tuple[int, ...] = ()


class Disk(Model):
    """+ minimum: bytes that the file system at `path` must have in all."""

    path: str
    minimum: int


class Hardware(Model):
    """What the pool says its servers are. Compared with what is found; never changed silently."""

    gpus: Gpus
    numa_nodes: int | None = None
    disks: tuple[Disk, ...] = ()
    hugepages: dict[str, int] = {}
    iommu: Literal["off", "passthrough", "on"] | None = None


class Reserved(Model):
    """What is kept from pods. Bytes; `cpus` is a CPU list, else `cpus_per_numa_node` whole cores are taken.

    `reservedMemory` is never asked for: it is computed from these, to the byte (R2).
    """

    cpus: str | None = None
    cpus_per_numa_node: int | None = None
    system_memory: int = 0
    kube_memory: int = 0
    eviction_memory: int = 100 * 2**20


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


class Pool(Model):
    """A product tier: servers that are alike, and what they are for."""

    platform: str
    stage: Literal["lab", "canary", "production"] = "production"
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    hardware: Hardware
    driver: Literal["operator", "host"] = "operator"
    numa: NumaPolicy = NumaPolicy()


class Rack(Model):
    """+ power: watts; + position: free text such as `row 3, slot 7`."""

    power: int | None = None
    cooling: Literal["air", "liquid"] | None = None
    position: str | None = None


# ---------------------------------------------------------------------------------------- one host
class Host(Model):
    """One host after ranges were unfolded. `addresses`: one, or one per family (dual stack); the first is
    where ssh goes and the first node IP."""

    name: str
    addresses: tuple[Address, ...]
    role: Role
    pool: str | None = None
    rack: str | None = None
    position: str | None = None

    @property
    def address(self) -> str:
        return str(self.addresses[0])


class Site(Model):
    """The whole document, validated, with ranges unfolded."""

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
