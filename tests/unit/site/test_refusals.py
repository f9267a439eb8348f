"""Each bad input is refused with its code and line, and its twin one character away is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from gpurack.errors import BadInput, Problem
from gpurack.site import load
from gpurack.site.models import Site
from tests.unit.site.conftest import CNI_SHA256, GOOD


def apt(fingerprint: str, extra: str = "", suite: str = "/") -> str:
    """A source of packages whose key is the file that the fixture made."""
    return (
        f"  kubernetes:\n    uri: http://10.1.0.2/apt\n    suite: {suite}\n"
        f'    key: {{file: key.asc, {extra}fingerprint: "{fingerprint}"}}\n'
    )


@dataclass(frozen=True)
class Refusal:
    """`old` in the good document becomes `bad` (refused as `code`, on the line of `at`) or `twin` (taken).

    The line to blame is the first that differs from the good document, or the one that holds `at`;
    `words` are some of what the problem must say.
    """

    code: str
    old: str
    bad: str
    twin: str
    at: str | None = None
    words: str = ""

    def __str__(self) -> str:
        return f"{self.code}:{self.bad.strip().splitlines()[-1].strip()[:48]}"


REFUSALS = [
    # ------------------------------------------------------------------ YAML
    Refusal("E-SITE-02", "name: test\naccept", "name: [test\naccept", "name: test\naccept", at="accept"),
    Refusal("E-SITE-02", "user: ops", "user: !x ops", "user: x ops"),
    Refusal("E-SITE-03", "user: ops\n", "user: ops\n  user: o\n", "user: ops\n#  user: o\n"),
    # ------------------------------------------------------------------ keys and types
    Refusal("E-SITE-04", "racks:", "rackz:", "racks:", words="write racks"),
    Refusal("E-SITE-04", "  user: ops", "  usr: ops", "  user: ops", words="write user"),
    Refusal("E-SITE-04", "system_memory", "systemmemory", "system_memory", words="write system_memory"),
    Refusal(
        "E-SITE-04",
        "    pool: h100\n    rack: r07\n    position: u09",
        "    pol: h100\n    rack: r07\n    position: u09",
        "    pool: h100\n    rack: r07\n    position: u09",
        words="write pool",
    ),
    Refusal(
        "E-SITE-05",
        "  endpoint: api",
        "  #endpoint: api",
        "  endpoint: api",
        at="cluster:",
        words="cluster.endpoint",
    ),
    Refusal("E-SITE-06", "port: 22", 'port: "22"', "port: 22", words="a whole number"),
    Refusal("E-SITE-07", "port: 22", "port: 0", "port: 1"),
    Refusal(
        "E-SITE-06",
        "example.com/tier: train",
        "example.com/tier: true",
        "example.com/tier: tru",
        words='"true"',
    ),
    Refusal("E-SITE-06", "position: u09", "position: [09]", "position: 09", words="a list"),
    Refusal("E-SITE-08", 'pause: "3.10.1"', "pause: 3.10", "pause: v3.10", words="the number 3.1"),
    Refusal("E-SITE-08", 'kubernetes: "1.34.4"', "kubernetes: 1.34", "kubernetes: 1.34.4", words="1.34"),
    Refusal("E-SITE-09", "system_memory: 8Gi", "system_memory: 8Gb", "system_memory: 8G"),
    Refusal("E-SITE-09", "system_memory: 8Gi", "system_memory: -8Gi", "system_memory: 8Gi"),
    Refusal("E-SITE-09", "cpus: 0-1", "cpus: 1-0", "cpus: 1-2"),
    # ------------------------------------------------------------------ ranges
    Refusal("E-SITE-10", "name: gpu-r07-[01:08]", "name: gpu-r07-[01:8]", "name: gpu-r07-[01:08]"),
    Refusal("E-SITE-10", "name: gpu-r07-[01:08]", "name: gpu-r07-[]", "name: gpu-r07-[01:08]"),
    Refusal(
        "E-SITE-10",
        "name: gpu-r07-[01:08]",
        "name: gpu-r[7]-[01:08]",
        "name: gpu-r7-[01:08]",
        words="more than one",
    ),
    Refusal("E-SITE-10", "position: u[01:08]", "position: u[01:08", "position: u[01:08]"),
    Refusal(
        "E-SITE-11",
        "address: 10.0.7.[11:18]",
        "address: 10.0.7.[11:08]",
        "address: 10.0.7.[11:18]",
        words="backwards",
    ),
    Refusal(
        "E-SITE-12",
        "address: 10.0.7.[11:18]",
        "address: 10.0.7.[11:17]",
        "address: 10.0.7.[11:18]",
        words="8 hosts",
    ),
    # ------------------------------------------------------------------ hosts
    Refusal("E-SITE-13", "name: gpu-r07-09", "name: gpu-r07-08", "name: gpu-r07-09", words="gpu-r07-08"),
    Refusal("E-SITE-13", "address: 10.0.7.19", "address: 10.0.7.18", "address: 10.0.7.19", words="10.0.7.18"),
    Refusal("E-SITE-19", "position: u09", "position: u08", "position: u09"),
    Refusal("E-SITE-14", "name: gpu-r07-09", "name: gpu_r07-09", "name: gpu-r07-09", words="gpu-r07-09"),
    Refusal("E-SITE-14", "name: gpu-r07-09", "name: controller", "name: controllers"),
    Refusal("E-SITE-15", "racks:\n", "racks:\n  h100: {}\n", "racks:\n  h10: {}\n", at="  h100:"),
    Refusal("E-SITE-16", "address: 10.0.7.19", "address: 10.0.7.256", "address: 10.0.7.25"),
    Refusal("E-SITE-16", "address: 10.0.7.19", "address: 10.0.7.09", "address: 10.0.7.9"),
    Refusal("E-SITE-17", "address: 10.0.7.19", "address: 10.0.7.19,", "address: 10.0.7.19"),
    Refusal("E-SITE-18", "address: 10.0.7.19", 'address: "::19"', "address: 10.0.7.19", words="IPv4"),
    Refusal(
        "E-SITE-70",
        "pool: h100\n    rack: r07\n    position: u09",
        "pool: h10\n    rack: r07\n    position: u09",
        "pool: h100\n    rack: r07\n    position: u09",
        words="write h100",
    ),
    Refusal(
        "E-SITE-70",
        "rack: r07\n    position: u09",
        "rack: r08\n    position: u09",
        "rack: r07\n    position: u09",
        words="write r07",
    ),
    Refusal(
        "E-SITE-73",
        "pool: h100\n    rack: r07\n    position: u09",
        "#pool: h100\n    rack: r07\n    position: u09",
        "pool: h100\n    rack: r07\n    position: u09",
        at="- name: gpu-r07-09",
    ),
    Refusal(
        "E-SITE-74",
        'address: "10.0.0.[1:2]", role: control-plane',
        'address: "10.0.0.[1:2]", pool: h100',
        'address: "10.0.0.[1:2]", role: control-plane',
        at="hosts:",
    ),
    # ------------------------------------------------------------------ networks
    Refusal(
        "E-SITE-20",
        "pod_cidrs: [10.244.0.0/16]",
        "pod_cidrs: [10.244.0.1/16]",
        "pod_cidrs: [10.244.0.0/16]",
        words="10.244.0.0/16",
    ),
    Refusal(
        "E-SITE-20", "pod_cidrs: [10.244.0.0/16]", "pod_cidrs: [10.244.0.0/40]", "pod_cidrs: [10.244.0.0/20]"
    ),
    Refusal(
        "E-SITE-21",
        "service_cidrs: [10.96.0.0/16]",
        "service_cidrs: [10.244.0.0/20]",
        "service_cidrs: [10.24.0.0/20]",
    ),
    Refusal(
        "E-SITE-22",
        "pod_cidrs: [10.244.0.0/16]",
        "pod_cidrs: [10.244.0.0/16, 10.245.0.0/16]",
        "pod_cidrs: [10.244.0.0/16]",
    ),
    Refusal("E-SITE-23", "address: 10.0.7.19", "address: 10.96.7.19", "address: 10.9.7.19"),
    Refusal(
        "E-SITE-25",
        "endpoint: api.example.com:6443",
        "endpoint: 2001:db8::19e:6443",
        'endpoint: "[2001:db8::19e]:6443"',
        words="[2001:db8::19e]:6443",
    ),
    Refusal(
        "E-SITE-25",
        "endpoint: api.example.com:6443",
        "endpoint: api.example.com",
        "endpoint: api.example.com:6443",
        words="write api.example.com:6443",
    ),
    Refusal(
        "E-SITE-25",
        "endpoint: api.example.com:6443",
        "endpoint: api.example.com:66443",
        "endpoint: api.example.com:6644",
    ),
    Refusal(
        "E-SITE-25", "endpoint: api.example.com:6443", "endpoint: 10.0.0.256:6443", "endpoint: 10.0.0.25:6443"
    ),
    Refusal(
        "E-SITE-26",
        "endpoint: api.example.com:6443\n",
        "endpoint: 10.0.0.1:6443\n",
        "endpoint: 10.0.0.3:6443\n",
    ),
    Refusal(
        "E-SITE-27", "pod_cidrs: [10.244.0.0/16]", "pod_cidrs: [10.244.0.0/22]", "pod_cidrs: [10.244.0.0/20]"
    ),
    Refusal(
        "E-SITE-28", "endpoint: api.example.com:6443", "endpoint: 10.0.7.19:6443", "endpoint: 10.0.7.29:6443"
    ),
    # ------------------------------------------------------------------ sources
    Refusal("E-SITE-64", "proxy: http://proxy", "proxy: htp://proxy", "proxy: http://proxy"),
    Refusal("E-SITE-64", "http://proxy.example.com:3128", "enw:PROXY", "env:PROXY"),
    Refusal("E-SITE-64", "proxy.example.com:3128", "proxy.example.com:93128", "proxy.example.com:9312"),
    Refusal("E-SITE-64", '"http://10.1.0.2:5000"', '"10.1.0.2:5000"', '"http://10.1.0.2:5000"'),
    Refusal(
        "E-SITE-65",
        "sources:\n",
        f"sources:\n{apt('0' * 40, suite='x')}",
        f"sources:\n{apt('0' * 40)}",
        at="suite",
    ),
    Refusal("E-SITE-66", "username: puller", "#username: puller", "username: puller", at="registry.k8s.io"),
    # ------------------------------------------------------------------ labels and taints
    Refusal("E-SITE-30", "example.com/tier: train", "example.com/-tier: train", "example.com/tier: train"),
    Refusal("E-SITE-30", "example.com/tier: train", "Example.com/tier: train", "example.com/tier: train"),
    Refusal("E-SITE-31", "example.com/tier: train", "example.com/tier: train-", "example.com/tier: train"),
    Refusal("E-SITE-32", "example.com/tier: train", "kubernetes.io/os: train", "kubernetes.io/oss: train"),
    Refusal(
        "E-SITE-33",
        "- nvidia.com/gpu=present:NoSchedule",
        "- nvidia.com/gpu=presentNoSchedule",
        "- nvidia.com/gpu=present:NoSchedule",
    ),
    Refusal(
        "E-SITE-33",
        "- nvidia.com/gpu=present:NoSchedule",
        "- nvidia.com/gpu=a b:NoSchedule",
        "- nvidia.com/gpu=a-b:NoSchedule",
    ),
    Refusal(
        "E-SITE-07",
        "- nvidia.com/gpu=present:NoSchedule",
        "- nvidia.com/gpu=present:Noschedule",
        "- nvidia.com/gpu=present:NoSchedule",
        words="NoSchedule",
    ),
    Refusal(
        "E-SITE-34",
        "      - nvidia.com/gpu=present:NoSchedule\n",
        "      - a=b:NoSchedule\n      - a=c:NoSchedule\n",
        "      - a=b:NoSchedule\n      - c=c:NoSchedule\n",
        at="- a=c",
    ),
    # ------------------------------------------------------------------ NUMA
    Refusal("E-SITE-07", "cpu: static", "cpu: Static", "cpu: static", words="wrong capitals"),
    Refusal("E-SITE-07", "memory: Static", "memory: static", "memory: Static", words="write Static"),
    Refusal(
        "E-SITE-07",
        "topology: restricted",
        "topology: restricte",
        "topology: restricted",
        words="write restricted",
    ),
    Refusal("E-SITE-40", "cpus: 0-1", "#cpus: 0-1", "cpus: 0-1", at="cpu: static"),
    Refusal(
        "E-SITE-40",
        "cpus: 0-1",
        "cpus: 0-1\n        cpus_per_numa_node: 1",
        "cpus: 0-1\n        #cpus_per_numa_node: 1",
        at="cpus_per_numa_node",
    ),
    Refusal(
        "E-SITE-41", "eviction_memory: 100Mi", "eviction_memory: 10%", "eviction_memory: 10M", words="R3"
    ),
    Refusal(
        "E-SITE-42", "cpu: static", "cpu: none", "cpu: static", at="cpu_options", words="full-pcpus-only"
    ),
    Refusal(
        "E-SITE-43",
        'full-pcpus-only: "true"',
        'prefer-align-cpus-by-uncorecache: "true", distribute-cpus-across-numa: "true"',
        'prefer-align-cpus-by-uncorecache: "true"',
    ),
    Refusal(
        "E-SITE-44",
        'full-pcpus-only: "true"',
        'full-cpus-only: "true"',
        'full-pcpus-only: "true"',
        words="write full-pcpus-only",
    ),
    Refusal(
        "E-SITE-44",
        'full-pcpus-only: "true"',
        'align-by-socket: "true"',
        'full-pcpus-only: "true"',
        words="alpha",
    ),
    Refusal("E-SITE-44", 'full-pcpus-only: "true"', 'full-pcpus-only: "True"', 'full-pcpus-only: "true"'),
    Refusal(
        "E-SITE-44",
        'max-allowable-numa-nodes: "8"',
        'max-allowable-numa-nodes: "7"',
        'max-allowable-numa-nodes: "9"',
    ),
    Refusal("E-SITE-45", '"10de:2330"', '"10De:2330"', '"10de:2330"'),
    Refusal("E-SITE-46", "per_numa_node: [4, 4]", "per_numa_node: [4, 3]", "per_numa_node: [4, 4]"),
    Refusal("E-SITE-46", "numa_nodes: 2\n", "numa_nodes: 3\n", "numa_nodes: 2\n", at="gpus:"),
    Refusal(
        "E-SITE-47", "path: /var/lib/containerd", "path: var/lib/containerd", "path: /var/lib/containerd"
    ),
    Refusal(
        "E-SITE-48",
        "[4, 4]}\n      numa_nodes: 2\n",
        "[]}\n      numa_nodes: 9\n",
        "[]}\n      numa_nodes: 8\n",
        at="topology: restricted",
    ),
    # ------------------------------------------------------------------ secrets and files
    Refusal("E-SITE-50", '"env:SUDO_PASSWORD"', '"env SUDO_PASSWORD"', '"env:SUDO_PASSWORD"'),
    Refusal("E-SITE-50", "proxy: http://proxy", "proxy: http://u:p@proxy", "proxy: http://up@proxy"),
    Refusal(
        "E-SITE-50",
        "example.com/tier: train",
        "example.com/tier: abcdef.0123456789abcdef",
        "example.com/tier: abcdef.0123456789abcde",
    ),
    Refusal("E-SITE-52", "port: 22", "key: id_", "key: id"),
    Refusal("E-SITE-52", "port: 22", "key: id.pub", "key: id", words="PRIVATE KEY"),
    Refusal(
        "E-SITE-52",
        "cni: bridge",
        "cni: bridge\n  kubeconfig: config_",
        "cni: bridge\n  kubeconfig: config",
        at="kubeconfig:",
    ),
    Refusal(
        "E-SITE-63",
        "cni: bridge",
        f"cni: {{manifest: {{file: cni.yaml, sha256: {CNI_SHA256[:-1]}x}}}}",
        f"cni: {{manifest: {{file: cni.yaml, sha256: {CNI_SHA256}}}}}",
        words=CNI_SHA256,
    ),
    Refusal("E-SITE-07", "cni: bridge", "cni: Bridge", "cni: bridge", words="write bridge"),
    Refusal(
        "E-SITE-62",
        "sources:\n",
        f"sources:\n{apt('0' * 39)}",
        f"sources:\n{apt('0' * 40)}",
        at="fingerprint",
    ),
    Refusal(
        "E-SITE-62",
        "sources:\n",
        f"sources:\n{apt('0' * 40, extra='url: http://x, ')}",
        f"sources:\n{apt('0' * 40)}",
        at="key:",
    ),
    Refusal(
        "E-SITE-52",
        "sources:\n",
        f"sources:\n{apt('file:fpr_')}",
        f"sources:\n{apt('file:fpr')}",
        at="fingerprint",
    ),
    # ------------------------------------------------------------------ stack and pools
    Refusal(
        "E-SITE-60",
        'kubernetes: "1.34.4"',
        'kubernetes: "v1.34.4"',
        'kubernetes: "1.34.4"',
        words="write 1.34.4",
    ),
    Refusal("E-SITE-60", 'kubelet: "1.34.4-1.1"', 'kubelet: "1.34.4-*"', 'kubelet: "1.34.4-1"'),
    Refusal("E-SITE-60", 'etcd: "3.6.5-0"', 'etcd: "3.6.5:0"', 'etcd: "3.6.5-0"'),
    Refusal(
        "E-SITE-61",
        'kubelet: "1.34.4-1.1"',
        'kubelet: "1.34.5-1.1"',
        'kubelet: "1.34.4-1.1"',
        words="1.34.4-",
    ),
    Refusal("E-SITE-61", 'containerd_io: "2.2.9-1"', 'containerd_io: "2.2.8-1"', 'containerd_io: "2.2.9-1"'),
    Refusal("E-SITE-61", 'cri_tools: "1.34.0-1.1"', 'cri_tools: "1.35.0-1.1"', 'cri_tools: "1.34.0-1.1"'),
    Refusal(
        "E-SITE-71",
        "racks:\n",
        "  spare: {platform: mgx, hardware: {gpus: {count: 0}}}\nracks:\n",
        "  #spare: {platform: mgx, hardware: {gpus: {count: 0}}}\nracks:\n",
        at="spare",
    ),
    Refusal(
        "E-SITE-72",
        "accept: [os-debian-12]",
        "accept: [os-debian-11]",
        "accept: [os-debian-12]",
        words="os-debian-12",
    ),
]


def problems(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load(path)
    return caught.value.problems


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_bad_input_is_refused_with_code_and_line(case: Refusal, document: Callable[..., Path]) -> None:
    path = document(case.old, case.bad)
    lines = path.read_text(encoding="utf-8").splitlines()
    good = GOOD.splitlines()
    differs = next(i for i in range(len(lines)) if lines[i : i + 1] != good[i : i + 1])
    blamed = next(i for i, line in enumerate(lines) if case.at in line) if case.at else differs
    found = problems(path)
    places = {(problem.code, problem.where.line) for problem in found if problem.where}
    assert (case.code, blamed + 1) in places, "\n".join(map(str, found))
    said = "\n".join(str(problem) for problem in found if problem.code == case.code)
    assert case.words in said


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_the_twin_of_a_bad_input_is_taken(case: Refusal, document: Callable[..., Path]) -> None:
    assert isinstance(load(document(case.old, case.twin)), Site)


def test_one_mistake_is_one_problem(document: Callable[..., Path]) -> None:
    """A refusal that drags others along would send people the wrong way."""
    several = {}
    for case in REFUSALS:
        found = problems(document(case.old, case.bad))
        if {problem.code for problem in found} != {case.code}:
            several[str(case)] = [problem.code for problem in found]
    assert several == {}


# Areas with a case that no single character can make good: a pair of quotes or brackets, a word.
NEED_A_WORD = {
    f"E-SITE-{area}"
    for area in ("06", "08", "10", "18", "22", "25", "42", "43", "44", "52", "62", "64", "74")
}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_bad_input_and_twin_are_one_character_apart(case: Refusal) -> None:
    steps = SequenceMatcher(None, case.bad, case.twin, autojunk=False).get_opcodes()
    apart = sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in steps if kind != "equal")
    assert apart == 1 or (apart > 1 and case.code in NEED_A_WORD)
