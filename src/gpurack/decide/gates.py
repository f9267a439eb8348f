"""Deviations from production that a site document may accept by id (`accept: [os-debian-12]`).

A gate is never opened by detection: the person who owns the site names it, and every report prints what was
accepted. Roles ask `"os-debian-12" in site.accept`.
"""

from __future__ import annotations

GATES: dict[str, str] = {
    "address-as-name": "a host is named by its IP address (O-31)",
    "os-debian-12": "hosts run Debian 12 instead of Ubuntu",
    "cgroup-v1": "hosts run the legacy cgroup hierarchy, which Kubernetes 1.35 refuses (R66)",
    "clock-not-synchronised": "hosts have no time service of their own (R64)",
    "shared-kernel": "hosts share one kernel: modules, sysctls and boot parameters are the machine's",
    "no-oom-adjust": "hosts may not lower oom scores, so runc must not try",
    "frozen-meminfo": "the NUMA node's memory total is a frozen copy, because the machine's own moves (R9)",
    "per-host-product-uuid": "product_uuid is given to each host by the lab, not by firmware (R56)",
    "simulated-gpus": "GPUs, their PCI tree and their device files are simulated by files",
}
