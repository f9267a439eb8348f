"""containerd as it runs: the merged configuration, limits of the process, CRI, and where images come from."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from testinfra.host import Host

from gpurack.site.models import Node
from tests.infra.conftest import is_container

pytestmark = pytest.mark.lab

RUNTIME, IMAGES = "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"


@pytest.fixture(scope="session")
def effective(node: Host) -> dict[str, Any]:
    """All files of containerd together, as containerd itself merges them."""
    return tomllib.loads(node.check_output("containerd config dump"))


@pytest.fixture(scope="session")
def cri(node: Host) -> dict[str, Any]:
    return dict(json.loads(node.check_output("crictl info")))


def test_it_runs_from_boot_and_never_fell_over(node: Host) -> None:
    service = node.service("containerd")
    assert service.is_enabled
    assert service.is_running
    assert service.systemd_properties["NRestarts"] == "0"
    assert service.systemd_properties["NeedDaemonReload"] == "no"


def test_the_effective_configuration_is_the_wanted_one(effective: dict[str, Any], declared: Node) -> None:
    assert not [name for name in effective.get("disabled_plugins", ()) if "cri" in name]
    runtimes = effective["plugins"][RUNTIME]["containerd"]
    default = runtimes["runtimes"][runtimes["default_runtime_name"]]
    assert default["runtime_type"] == "io.containerd.runc.v2"
    assert default["options"]["SystemdCgroup"] is True
    images = effective["plugins"][IMAGES]
    repository, pause = declared.site.sources.image_repository, declared.site.stack.images.pause
    assert images["pinned_images"]["sandbox"] == f"{repository}/pause:{pause}"
    assert images["registry"]["config_path"] == "/etc/containerd/certs.d"


def test_the_process_started_after_its_last_file(node: Host) -> None:
    began = int(node.check_output("stat -c %Y /proc/$(systemctl show -p MainPID --value containerd)"))
    files = "/etc/containerd/config.toml /etc/containerd/conf.d/*.toml"
    newest = max(map(int, node.check_output(f"stat -c %Y {files}").split()))
    assert newest <= began + 1


def test_containers_may_lock_memory(node: Host, declared: Node) -> None:
    properties = node.service("containerd").systemd_properties
    assert properties["LimitMEMLOCK"] == "infinity"
    if is_container(declared) and "no-oom-adjust" in declared.site.accept:
        return  # without CAP_SYS_RESOURCE systemd can't raise it, and says nothing
    limits = node.check_output(f"grep 'locked memory' /proc/{properties['MainPID']}/limits")
    assert limits.split()[3:5] == ["unlimited", "unlimited"]


def test_cri_is_ready_and_agrees_on_the_cgroup_driver(cri: dict[str, Any]) -> None:
    conditions = {one["type"]: one["status"] for one in cri["status"]["conditions"]}
    assert conditions["RuntimeReady"]
    assert conditions["NetworkReady"]
    runtimes = cri["config"]["containerd"]
    assert runtimes["runtimes"][runtimes["defaultRuntimeName"]]["options"]["SystemdCgroup"] is True


def test_every_declared_mirror_is_configured(node: Host, declared: Node) -> None:
    for registry, source in declared.site.sources.registries.items():
        file = node.file(f"/etc/containerd/certs.d/{registry}/hosts.toml")
        assert file.user == "root"
        if source.password:
            assert file.mode == 0o600
        hosts = tomllib.loads(file.content_string)
        asked = [*hosts.get("host", {}), hosts["server"]]
        assert asked == list(source.mirrors)


def test_the_pause_image_can_be_pulled(node: Host, declared: Node) -> None:
    repository, pause = declared.site.sources.image_repository, declared.site.stack.images.pause
    pulled = node.run(f"timeout 30 crictl pull {repository}/pause:{pause}")
    assert pulled.rc == 0, pulled.stderr
