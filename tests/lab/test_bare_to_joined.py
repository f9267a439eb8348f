"""The main job: bare hosts become Ready members, and a second run finds nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpurack.site.load import load
from tests.lab import harness

pytestmark = pytest.mark.lab


def test_bare_hosts_become_ready_nodes_of_one_cluster(joined_rack: Path) -> None:
    wanted = {host.name for host in load(joined_rack).hosts}
    harness.until(
        lambda: {name for name, is_ready in harness.ready(joined_rack).items() if is_ready} == wanted,
        f"nodes {sorted(wanted)} are Ready",
        deadline=60,
    )


@pytest.mark.parametrize("deploy", ["control_plane", "gpu_node"])
def test_a_second_run_changes_nothing_and_touches_nothing(joined_rack: Path, deploy: str) -> None:
    hosts = [host.name for host in load(joined_rack).hosts]
    before = {host: harness.footprint(host, site=joined_rack) for host in hosts}

    again = harness.pyinfra("inventories/lab_vm", f"deploys/{deploy}.py", "--json").ok()

    assert harness.changed(again) == {}
    after = {host: harness.footprint(host, site=joined_rack) for host in hosts}
    moved = {
        f"{host}:{path}": (before[host].get(path), after[host].get(path))
        for host in hosts
        for path in before[host].keys() | after[host].keys()
        if before[host].get(path) != after[host].get(path)
    }
    assert moved == {}
