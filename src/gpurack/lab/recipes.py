"""What the lab is built of: one recipe per component, as data.

A recipe is everything that decides what its binaries contain. Its hash names the folder in the cache, so
that a changed recipe is built again and an unchanged one never is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KUBERNETES = "1.34.4"
CONTAINERD = "2.2.9"
RUNC = "1.3.6"
ETCD = "3.6.5"
CRI_TOOLS = "1.34.0"
COREDNS = "1.12.1"
CNI_PLUGINS = "1.7.1"
PAUSE = "3.10.1"
PROBE = "1"

STATIC_GO = ("-s", "-w")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoRecipe:
    """Binaries out of published Go modules, by one `go build`.

    + binaries: name of the binary -> path of its main package
    + require: module -> version; enough of them to decide every version that is built
    + staging: (module, version): every `k8s.io/x v0.0.0` line of that module's own go.mod is replaced by
      `k8s.io/x` at that version, for Kubernetes refers to its parts that way
    + source: folder beside this module with Go source of ours, or none
    + ldflags, tags, cgo: as `go build` takes them
    """

    name: str
    version: str
    binaries: dict[str, str]
    require: dict[str, str] = field(default_factory=dict)
    staging: tuple[str, str] | None = None
    source: str | None = None
    ldflags: tuple[str, ...] = STATIC_GO
    tags: tuple[str, ...] = ()
    cgo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CRecipe:
    """One static binary out of one C file of ours, in the folder `source` beside this module."""

    name: str
    version: str
    source: str
    flags: tuple[str, ...] = ("-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror")

    @property
    def binaries(self) -> dict[str, str]:
        return {self.name: self.source}


Recipe = GoRecipe | CRecipe


def _kubernetes_stamp(version: str) -> tuple[str, ...]:
    """kubeadm refuses to work with binaries that do not know their version."""
    major, minor, _ = version.split(".")
    values = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(f"-X {package}.{key}={value}" for package in packages for key, value in values.items())


def _staged(version: str) -> str:
    """1.34.4 -> v0.34.4, the version under which the parts of Kubernetes are published."""
    return "v0." + version.split(".", 1)[1]


_CNI = "github.com/containernetworking/plugins/plugins"
_K8S_PARTS = ("api", "apimachinery", "client-go", "cri-api", "cri-client", "kubectl", "kubelet")

RECIPES: tuple[Recipe, ...] = (
    CRecipe(name="pause", version=PAUSE, source="pause"),
    CRecipe(name="probe", version=PROBE, source="probe"),
    GoRecipe(
        name="kubernetes",
        version=KUBERNETES,
        binaries={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kubeadm",
                "kubelet",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kube-proxy",
                "kubectl",
            )
        },
        require={"k8s.io/kubernetes": f"v{KUBERNETES}"},
        staging=("k8s.io/kubernetes", _staged(KUBERNETES)),
        ldflags=STATIC_GO + _kubernetes_stamp(KUBERNETES),
    ),
    GoRecipe(
        name="containerd",
        version=CONTAINERD,
        binaries={
            name: f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        require={"github.com/containerd/containerd/v2": f"v{CONTAINERD}"},
        ldflags=(
            *STATIC_GO,
            f"-X github.com/containerd/containerd/v2/version.Version=v{CONTAINERD}",
            "-X github.com/containerd/containerd/v2/version.Package=containerd.io",
        ),
        tags=("urfave_cli_no_docs", "osusergo", "netgo", "static_build"),
    ),
    GoRecipe(
        name="runc",
        version=RUNC,
        binaries={"runc": "github.com/opencontainers/runc"},
        require={"github.com/opencontainers/runc": f"v{RUNC}"},
        ldflags=(*STATIC_GO, "-extldflags -static"),
        tags=("seccomp", "urfave_cli_no_docs", "netgo", "osusergo"),
        cgo=True,  # the namespace entry is C, and seccomp needs libseccomp
    ),
    GoRecipe(
        name="cni",
        version=CNI_PLUGINS,
        binaries={
            path.rsplit("/", 1)[1]: f"{_CNI}/{path}"
            for path in (
                "main/bridge",
                "main/dummy",
                "main/host-device",
                "main/ipvlan",
                "main/loopback",
                "main/macvlan",
                "main/ptp",
                "main/tap",
                "main/vlan",
                "ipam/dhcp",
                "ipam/host-local",
                "ipam/static",
                "meta/bandwidth",
                "meta/firewall",
                "meta/portmap",
                "meta/sbr",
                "meta/tuning",
                "meta/vrf",
            )
        },
        require={"github.com/containernetworking/plugins": f"v{CNI_PLUGINS}"},
        ldflags=(
            *STATIC_GO,
            f"-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v{CNI_PLUGINS}",
        ),
    ),
    GoRecipe(
        # beside gpusim, at the Kubernetes version of the node: the shared libraries are compiled once
        name="crictl",
        version=CRI_TOOLS,
        binaries={"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"},
        require={
            "sigs.k8s.io/cri-tools": f"v{CRI_TOOLS}",
            **{f"k8s.io/{part}": _staged(KUBERNETES) for part in _K8S_PARTS},
        },
        ldflags=(*STATIC_GO, f"-X sigs.k8s.io/cri-tools/pkg/version.Version=v{CRI_TOOLS}"),
    ),
    GoRecipe(
        name="gpusim",
        version=KUBERNETES,
        binaries={"gpusim": "."},
        require={"k8s.io/kubelet": _staged(KUBERNETES), "github.com/fsnotify/fsnotify": "v1.9.0"},
        source="gpusim",
    ),
    GoRecipe(
        name="etcd",
        version=ETCD,
        binaries={"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"},
        require={"go.etcd.io/etcd/server/v3": f"v{ETCD}", "go.etcd.io/etcd/etcdctl/v3": f"v{ETCD}"},
    ),
    GoRecipe(
        # needs an older client-go than 0.34: a module of its own
        name="coredns",
        version=COREDNS,
        binaries={"coredns": "github.com/coredns/coredns"},
        require={"github.com/coredns/coredns": f"v{COREDNS}"},
    ),
)

CNI_BINARIES = tuple(next(r for r in RECIPES if r.name == "cni").binaries)
