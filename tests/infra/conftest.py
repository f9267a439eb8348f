"""Every node of the rack, seen by testinfra over plain ssh: a second opinion that uses no fact of gpurack.

Hosts and what they should be come from the site document of the rack. `--as-is` takes the rack as it runs;
hosts that it does not run are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import testinfra
from testinfra.host import Host

from gpurack.engine.run import known_hosts
from gpurack.site.load import load
from gpurack.site.models import Node
from tests.conftest import SITE
from tests.lab import harness


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "role(name): only on hosts of this role")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" not in metafunc.fixturenames:
        return
    role = metafunc.definition.get_closest_marker("role")
    # Keys and fingerprints of the site exist once the rack does; its hosts are known before that.
    hosts = load(SITE, files=False).hosts
    names = [host.name for host in hosts if role is None or host.role == role.args[0]]
    metafunc.parametrize("name", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def running(joined_rack: Path) -> frozenset[str]:  # noqa: ARG001 - there is no rack before it
    """Names of the hosts that answer."""
    status = harness.gpurack("lab", "status", "--json", timeout=120)
    return frozenset(host["name"] for host in json.loads(status.out)["hosts"] if host["ssh"])


@pytest.fixture(scope="session")
def reach(joined_rack: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Node], Host]:
    """testinfra's host for a node: its key is checked against the site's known_hosts, and nothing else."""
    site = load(joined_rack)
    config = tmp_path_factory.mktemp("ssh") / "config"
    config.write_text(
        "Host *\n  BatchMode yes\n  StrictHostKeyChecking yes\n  GlobalKnownHostsFile /dev/null\n"
        f"  UserKnownHostsFile {known_hosts(site)}\n  LogLevel ERROR\n  IdentitiesOnly yes\n"
        f"  ControlPath {config.parent}/%C\n"
    )

    def one(node: Node) -> Host:
        return testinfra.get_host(
            f"ssh://{site.ssh.user}@{node.host.address}",
            ssh_config=str(config),
            ssh_identity_file=site.ssh.key,
            controlpersist=30,
        )

    return one


@pytest.fixture(scope="session")
def name(request: pytest.FixtureRequest, running: frozenset[str]) -> str:
    wanted: str = request.param
    if wanted not in running:
        pytest.skip(f"the rack does not run {wanted}")
    return wanted


@pytest.fixture(scope="session")
def declared(name: str, joined_rack: Path) -> Node:
    """What the site document says about the host."""
    return load(joined_rack).node(name)


@pytest.fixture(scope="session")
def node(declared: Node, reach: Callable[[Node], Host]) -> Host:
    """The host itself."""
    return reach(declared)


@pytest.fixture(scope="session")
def everyone(joined_rack: Path, running: frozenset[str], reach: Callable[[Node], Host]) -> dict[str, Host]:
    """Every host that answers, by name."""
    site = load(joined_rack)
    return {host.name: reach(site.node(host.name)) for host in site.hosts if host.name in running}


@pytest.fixture(scope="session")
def in_api(joined_rack: Path) -> dict[str, dict[str, Any]]:
    """Every Node object by name."""
    return {each["metadata"]["name"]: each for each in harness.objects("nodes", site=joined_rack)}


def is_container(node: Node) -> bool:
    """Whether the host shares the machine's kernel. The control plane of the lab does, and has no pool."""
    return node.pool is None or node.pool.platform == "lab-container"
