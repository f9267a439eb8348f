"""`make bench`: the no-change run, the cold join, and the validation of a large document."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gpurack.site.load import load
from tests.lab import harness

SITE = harness.REPOSITORY / "inventories" / "lab.yaml"
RUNS = 5

# What a person would type to see the same state: the peer of the no-change run.
PROBE = """
cat /etc/os-release /etc/machine-id /proc/swaps /proc/sys/net/ipv4/ip_forward
dpkg-query -W -f '${Package} ${Version} ${Status}\\n' kubelet kubeadm kubectl containerd.io cri-tools
apt-mark showhold; containerd config dump; crictl info
systemctl show kubelet containerd -p ActiveState,SubState,NRestarts
cat /var/lib/kubelet/config.yaml /var/lib/kubelet/*_manager_state
cat /sys/devices/system/node/node*/meminfo
openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem
"""


@dataclass(frozen=True)
class Cost:
    """+ wall, cpu: seconds; + memory: bytes, the largest single process."""

    wall: float
    cpu: float
    memory: int


def measured(work: Callable[[], object]) -> Cost:
    """What `work`'s child processes cost."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    work()
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, after.ru_maxrss * 1024)


def probe_each_host() -> None:
    """One ssh connection and one script per host, all hosts at once."""
    with ThreadPoolExecutor() as pool:
        hosts = [host.name for host in load(SITE).hosts]
        list(pool.map(lambda host: harness.ssh(host, PROBE, site=SITE), hosts))


def run_nothing_to_do() -> None:
    for deploy in ("control_plane", "gpu_node"):
        harness.pyinfra("inventories/lab", f"deploys/{deploy}.py").ok()


def run_gpu_nodes_only() -> None:
    harness.pyinfra("inventories/lab", "deploys/gpu_node.py").ok()


def median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.cpu for cost in costs),
        max(cost.memory for cost in costs),
    )


def no_change(table: Table) -> None:
    """The run that finds nothing to do, pair by pair with the probe."""
    pairs = [(measured(run_gpu_nodes_only), measured(probe_each_host)) for _ in range(RUNS)]
    ours, peer = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    ratio = statistics.median(pair[0].wall / pair[1].wall for pair in pairs)
    table.add_row(
        "no-change gpu_node.py, 3 hosts / ssh + probe script per host",
        f"{ratio:.2f}x",
        "3x",
        f"{ours.wall:.2f} s / {peer.wall:.2f} s, cpu {ours.cpu:.2f} s / {peer.cpu:.2f} s, "
        f"peak {ours.memory >> 20} MiB",
    )


def cold_join(table: Table) -> None:
    """Join of a prepared host against the bare commands in a shell script that waits for the same Ready."""
    ours, peer = [], []
    for _ in range(3):
        forget("gpu-1")
        peer.append(measured(join_by_hand))
        forget("gpu-1")
        ours.append(join_by_gpurack())
    ratio = statistics.median(mine.wall / theirs.wall for mine, theirs in zip(ours, peer, strict=True))
    table.add_row(
        "cold join of a prepared host / bare commands in a shell script",
        f"{ratio:.2f}x",
        "1.25x",
        f"{median(ours).wall:.2f} s / {median(peer).wall:.2f} s, peak {median(ours).memory >> 20} MiB",
    )


def join_by_gpurack() -> Cost:
    """The deploy up to the same Ready; the 35 s for which it then watches kubelet have no peer."""
    start = time.monotonic()
    ready = 0.0

    def run() -> None:
        nonlocal ready
        command = [
            harness.BIN / "pyinfra",
            "--yes",
            "--limit",
            "gpu-1",
            "inventories/lab",
            "deploys/gpu_node.py",
        ]
        with subprocess.Popen(command, cwd=harness.REPOSITORY, stdout=subprocess.DEVNULL) as process:
            harness.until(lambda: harness.ready(SITE).get("gpu-1", False), "gpu-1 is Ready", 120, every=0.2)
            ready = time.monotonic() - start
            assert process.wait() == 0

    return replace(measured(run), wall=ready)


def forget(host: str) -> None:
    """Back to "prepared": packages, runtime and kubelet configuration stay, membership goes."""
    harness.kubectl("delete", "node", host, "--ignore-not-found", site=SITE).ok()
    harness.ssh(host, "kubeadm reset -f >/dev/null 2>&1; rm -f /etc/cni/net.d/*", site=SITE).ok()


def join_by_hand() -> None:
    """What a person types: token, kubeadm join, CNI file, wait for Ready."""
    command = harness.ssh(
        "cp-1", "kubeadm token create --ttl 15m --print-join-command 2>/dev/null", site=SITE
    ).ok()
    harness.ssh(
        "gpu-1",
        f"{command.out.strip()} --ignore-preflight-errors=SystemVerification >/dev/null 2>&1",
        site=SITE,
    ).ok()
    cidr = ""

    def has_cidr() -> bool:
        nonlocal cidr
        query = ("get", "node", "gpu-1", "-o", "jsonpath={.spec.podCIDR}")
        cidr = harness.kubectl(*query, site=SITE).out.strip()
        return bool(cidr)

    harness.until(has_cidr, "gpu-1 has a pod CIDR", deadline=60, every=0.2)
    conflist = (
        '{"cniVersion":"1.0.0","name":"gpurack","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,'
        f'"ipMasq":true,"ipam":{{"type":"host-local","ranges":[[{{"subnet":"{cidr}"}}]]}}}}]}}'
    )
    harness.ssh("gpu-1", "cat >/etc/cni/net.d/10-bench.conflist", site=SITE, stdin=conflist).ok()
    harness.until(lambda: harness.ready(SITE).get("gpu-1", False), "gpu-1 is Ready", deadline=120, every=0.2)


def thousand_hosts(table: Table) -> None:
    """A document of 1,000 hosts, validated by a fresh process."""
    text = SITE.read_text(encoding="utf-8").replace("stack: stacks/", f"stack: {SITE.parent}/stacks/")
    text = text.replace("10.244.0.0/16", "10.128.0.0/12")  # a /24 for each of them
    head, _, _ = text.partition("\nhosts:")
    hosts = "\nhosts:\n  - {name: cp-1, address: 10.77.0.11, role: control-plane}\n" + "".join(
        f'  - {{name: "gpu-{rack:02}-[01:25]", address: "10.88.{rack}.[1:25]", '
        "pool: lab-container, role: gpu}\n"
        for rack in range(40)
    )
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "large.yaml"
        document.write_text(head + hosts, encoding="utf-8")
        costs = [measured(lambda: harness.gpurack("check", document).ok()) for _ in range(RUNS)]
    cost = median(costs)
    table.add_row(
        "check of a document with 1,000 hosts", f"{cost.wall:.2f} s", "2 s", f"peak {cost.memory >> 20} MiB"
    )


def main() -> int:
    if os.geteuid() != 0:
        sys.stderr.write("gpurack: the benches need the lab, and the lab needs root: sudo make bench\n")
        return 4
    table = Table(
        "what",
        "figure",
        "first target",
        "medians",
        title=f"gpurack bench, {RUNS} runs, {os.cpu_count()} cores",
    )
    try:
        harness.gpurack("lab", "up", "--site", SITE, timeout=600).ok()
        run_nothing_to_do()
        thousand_hosts(table)
        no_change(table)
        cold_join(table)
    except subprocess.TimeoutExpired as error:
        sys.stderr.write(f"gpurack: {error}\n")
        return 1
    Console(width=160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
