"""GPU, CPUs and memory of a pod on one NUMA node: asked of the vm's kernel, before and after a reboot.

gpu-3 has CPUs 0-1 | 2-3 with CPU 0 reserved, two simulated GPUs on each node (devices 0, 1 | 2, 3), and the
guide's policies: static, Static, single-numa-node, scope pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpurack.decide.kubelet.snapshot import MEMORY_STATE
from gpurack.lab import rack, vm
from tests.lab import harness

pytestmark = [pytest.mark.lab, pytest.mark.vm]

HOST = "gpu-3"
IMAGES = "registry.k8s.io/gpurack-lab"
RESOURCE = "nvidia.com/gpu"
PART = "gpurack.example/alignment"  # label: plugin, or pod
MIB = 1 << 20
PATIENCE = 420  # seconds; the guest is emulated: a pod starts in five to forty, on a busy machine in far more

# What the kernel holds about a container's first process, and what the plugin put into its environment.
LOOK = r"""
pid=$(crictl inspect --output go-template --template '{{.info.pid}}' %s) &&
sed -n 's/^\(Cpus\|Mems\)_allowed_list:[[:space:]]*//p' "/proc/$pid/status" &&
tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^GPURACK_SIMULATED_GPUS=//p' | tr ',' '\n' | sort
"""


def metadata(name: str, part: str) -> dict[str, Any]:
    return {"name": f"alignment-{name}", "namespace": "default", "labels": {PART: part}}


def plugin() -> dict[str, Any]:
    """The simulated device plugin, as a vendor's runs: a DaemonSet that outlives a reboot."""
    folder = "/var/lib/kubelet/device-plugins"
    container = {
        "name": "gpusim",
        "image": f"{IMAGES}/gpusim:1",
        "args": ["-numa", "0,0,1,1", "-resource", RESOURCE],
        "volumeMounts": [{"name": "plugins", "mountPath": folder}],
    }
    template = {
        "metadata": {"labels": {PART: "plugin"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": HOST},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "plugins", "hostPath": {"path": folder}}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata("gpusim", "plugin"),
        "spec": {"selector": {"matchLabels": {PART: "plugin"}}, "template": template},
    }


def pod(name: str, *, cpus: int, memory: int, gpus: int = 0) -> dict[str, Any]:
    """A Guaranteed pod: whole CPUs, memory in bytes, GPUs."""
    amounts = {"cpu": str(cpus), "memory": str(memory)} | ({RESOURCE: str(gpus)} if gpus else {})
    container = {"name": "probe", "image": f"{IMAGES}/probe:1", "resources": {"limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, "pod"),
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": HOST},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


def apply(wanted: dict[str, Any], site: Path) -> None:
    harness.kubectl("apply", "-f", "-", site=site, stdin=json.dumps(wanted)).ok()


def settled(wanted: dict[str, Any], site: Path) -> dict[str, Any]:
    """The pod's status once it runs or has failed."""
    name = wanted["metadata"]["name"]
    apply(wanted, site)
    last: dict[str, Any] = {}

    def done() -> bool:
        last.update(
            json.loads(harness.kubectl("get", "pod", name, "-o", "json", site=site).ok().out)["status"]
        )
        return last["phase"] in ("Running", "Failed")

    harness.until(done, f"{name} runs or has failed; its status is {last}", deadline=PATIENCE, every=2)
    return last


def seen(wanted: dict[str, Any], site: Path) -> tuple[str, str, tuple[str, ...]]:
    """CPUs and memory nodes that the kernel allows the running pod, and the GPUs that it was given."""
    status = settled(wanted, site)
    assert status["phase"] == "Running", status
    container = status["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    cpus, nodes, *gpus = harness.ssh(HOST, LOOK % container, site=site).ok().out.split()
    return cpus, nodes, tuple(gpus)


def memory_nodes(site: Path) -> dict[int, int]:
    """Bytes of memory on each NUMA node, as the kernel counts them."""
    script = "awk '$3 == \"MemTotal:\" { print $2, $4 }' /sys/devices/system/node/node*/meminfo"
    lines = harness.ssh(HOST, script, site=site).ok().out.splitlines()
    return {int(node): int(kib) * 1024 for node, kib in map(str.split, lines)}


def no_pods(site: Path) -> None:
    harness.kubectl("delete", "pod", "-l", f"{PART}=pod", site=site, timeout=PATIENCE).ok()


def has_gpus(site: Path, boot: str) -> bool:
    """The node is Ready and offers its four GPUs, and says so since this boot."""
    (node,) = (one for one in harness.objects("nodes", site=site) if one["metadata"]["name"] == HOST)
    status = node["status"]
    return (
        harness.ready(site)[HOST]
        and status["nodeInfo"]["bootID"] == boot
        and status["allocatable"].get(RESOURCE) == "4"
    )


def boot_id(site: Path) -> str:
    return harness.ssh(HOST, "cat /proc/sys/kernel/random/boot_id", site=site).ok().out.strip()


def misfits_are_rejected(site: Path) -> None:
    three = settled(pod("three-gpus", cpus=1, memory=64 * MIB, gpus=3), site)
    assert (three["phase"], three["reason"]) == ("Failed", "TopologyAffinityError"), three

    larger = max(memory_nodes(site).values()) + 16 * MIB
    large = settled(pod("large", cpus=1, memory=larger), site)
    assert large["phase"] == "Failed", large
    assert large["reason"] in ("UnexpectedAdmissionError", "TopologyAffinityError"), large


def pods_lie_on_one_node_each(site: Path) -> None:
    first = seen(pod("two-cpus", cpus=2, memory=256 * MIB, gpus=2), site)
    assert first == ("2-3", "1", ("GPU-simulated-2", "GPU-simulated-3"))

    second = seen(pod("one-cpu", cpus=1, memory=256 * MIB, gpus=2), site)
    assert second == ("1", "0", ("GPU-simulated-0", "GPU-simulated-1"))


@pytest.fixture(scope="module")
def offered(joined_rack: Path) -> Iterator[Path]:
    """The plugin has registered. At the end it is gone with all pods, and the node is a Ready member."""
    apply(plugin(), joined_rack)
    boot = boot_id(joined_rack)
    harness.until(lambda: has_gpus(joined_rack, boot), f"{HOST} offers its GPUs", deadline=PATIENCE, every=3)
    yield joined_rack
    harness.kubectl("delete", "daemonset,pod", "-l", PART, site=joined_rack, timeout=PATIENCE).ok()
    assert harness.ready(joined_rack)[HOST]


@pytest.fixture
def site(offered: Path) -> Iterator[Path]:
    """Nothing of ours runs but the plugin, before and after."""
    no_pods(offered)
    yield offered
    no_pods(offered)


def test_pods_get_gpus_cpus_and_memory_of_one_numa_node_on_each_in_turn(site: Path) -> None:
    pods_lie_on_one_node_each(site)


def test_pods_that_fit_no_numa_node_are_rejected(site: Path) -> None:
    misfits_are_rejected(site)


def test_all_of_it_again_after_a_reboot_with_changed_memory(site: Path) -> None:
    """kubelet comes back by itself, though a pod was pinned and the node's memory is another (R9, R10)."""
    seen(pod("before", cpus=2, memory=256 * MIB, gpus=2), site)
    saved = harness.ssh(HOST, f"cat {MEMORY_STATE}", site=site).ok().out
    before, boot = memory_nodes(site), boot_id(site)
    try:
        harness.gpurack("lab", "reboot", HOST, "--memory", "2048,1920").ok()
    finally:
        vm.configure(rack.find(HOST)[0])  # its next boot, whoever causes it, has the usual memory again

    assert boot_id(site) != boot
    assert memory_nodes(site)[1] < before[1] - 64 * MIB
    boot = boot_id(site)
    harness.until(lambda: has_gpus(site, boot), f"{HOST} is back with its GPUs", deadline=PATIENCE, every=3)
    assert harness.ssh(HOST, f"cat {MEMORY_STATE}", site=site).ok().out != saved
    told = harness.ssh(HOST, "journalctl -b -u kubelet --no-pager", site=site).ok().out
    assert "new boot: removed the state of kubelet's CPU and memory managers" in told
    assert harness.STATE_REFUSED not in told

    no_pods(site)
    misfits_are_rejected(site)
    pods_lie_on_one_node_each(site)
