"""NUMA nodes, their memory and hugepages, CPUs and cores: one script over sysfs."""

from __future__ import annotations

import re

from gpurack.decide.numa import CpuSet, NumaNode, Topology, parse_cpus
from gpurack.facts.probe import Probe

# Few forks: a 256-thread server answers in milliseconds. Lists of siblings go through grep: they are binary
# attributes since Linux 5.15, and dash's `read`, which takes one byte at a time, gets nothing from those.
# The CPUs of a node are its cpuN links, which is what kubelet counts; some kernels leave `cpulist` blank.
_SCRIPT = r"""
cd /sys/devices/system || exit 1
for name in online present; do
  value=; IFS= read -r value < cpu/$name || :
  printf '%s\t%s\n' "$name" "$value"
done
grep -s -H '' cpu/cpu[0-9]*/topology/thread_siblings_list |
  sed -n 's|^cpu/cpu\([0-9]*\)/[^:]*:\(.*\)|core\t\1\t\2|p'
for dir in node/node[0-9]*; do
  [ -d "$dir" ] || continue
  id=${dir#node/node}; cpus=
  for cpu in "$dir"/cpu[0-9]*; do [ -e "$cpu" ] && cpus=$cpus${cpus:+,}${cpu##*/cpu}; done
  printf 'node\t%s\t%s\t%s\n' "$id" "$cpus" "$(grep MemTotal "$dir/meminfo")"
  for pool in "$dir"/hugepages/hugepages-*; do
    [ -r "$pool/nr_hugepages" ] || continue
    IFS= read -r value < "$pool/nr_hugepages"
    printf 'huge\t%s\t%s\t%s\n' "$id" "${pool##*/hugepages-}" "$value"
  done
done
if [ ! -d node ]; then printf 'flat\t%s\n' "$(grep MemTotal /proc/meminfo)"; fi
printf 'end\n'
"""


class Numa(Probe[Topology]):
    """NUMA topology of the host. A kernel built without NUMA is one node with everything in it."""

    script = _SCRIPT

    def parse(self, text: str) -> Topology:
        return parse_topology(text)


def parse_topology(text: str) -> Topology:
    """The script's answer as a model. `ValueError` when it was cut off or says something unknown."""
    rows = [line.split("\t") for line in text.splitlines()]
    if not rows or rows[-1] != ["end"]:
        raise ValueError("the topology script did not come to its end")
    lists: dict[str, CpuSet] = {}
    siblings: dict[int, CpuSet] = {}
    nodes: dict[int, tuple[CpuSet, int]] = {}
    huge: dict[int, dict[int, int]] = {}
    flat: int | None = None
    for row in rows[:-1]:
        match row:
            case ["online" | "present" as name, value]:
                lists[name] = parse_cpus(value)
            case ["core", cpu, value]:
                siblings[int(cpu)] = parse_cpus(value)
            case ["node", number, cpus, total]:
                nodes[int(number)] = parse_cpus(cpus), _kilobytes(total)
            case ["huge", number, size, count]:
                huge.setdefault(int(number), {})[_kilobytes(size)] = int(count)
            case ["flat", total]:
                flat = _kilobytes(total)
            case _:
                raise ValueError(f"unknown row {row!r}")
    online = lists["online"]
    if not online:
        raise ValueError("no CPU is online")
    if flat is not None:
        nodes = {0: (online, flat)}
    return Topology(
        nodes=tuple(
            NumaNode(
                id=number,
                memory=memory,
                cpus=cpus & online,
                hugepages={size: count for size, count in sorted(huge.get(number, {}).items()) if count},
            )
            for number, (cpus, memory) in sorted(nodes.items())
        ),
        online=online,
        present=lists["present"] | online,
        siblings=siblings,
    )


def _kilobytes(text: str) -> int:
    """Bytes in `Node 0 MemTotal:  1234 kB`, `MemTotal: 1234 kB` or `2048kB`; no text at all is 0."""
    if not text:
        return 0
    match = re.search(r"(\d+) ?kB$", text)
    if match is None:
        raise ValueError(f"{text!r} gives no number of kB")
    return int(match[1]) * 1024
