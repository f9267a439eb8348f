"""Exact versions from signed sources, held, and one owner of containerd."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from gpurack.site.models import Node

pytestmark = pytest.mark.lab


def _pins(declared: Node) -> dict[str, str]:
    given = declared.site.stack.packages.model_dump()
    return {key.replace("_io", ".io").replace("_", "-"): version for key, version in given.items()}


def test_packages_have_exactly_the_pinned_versions(node: Host, declared: Node) -> None:
    query = node.check_output("dpkg-query -W -f '${Package} ${Version}\\n'").splitlines()
    found = dict(line.split() for line in query)
    pins = _pins(declared)
    assert {name: found.get(name) for name in pins} == pins


def test_packages_are_held_and_stay_through_an_upgrade_of_everything(node: Host, declared: Node) -> None:
    pins = _pins(declared)
    assert set(pins) <= set(node.check_output("apt-mark showhold").split())
    # The repository has a later revision of each.
    planned = node.check_output("apt-get -s -o Debug::NoLocking=1 dist-upgrade")
    touched = {line.split()[1] for line in planned.splitlines() if line.startswith(("Inst ", "Remv "))}
    assert touched & set(pins) == set()


def test_binaries_are_those_versions(node: Host, declared: Node) -> None:
    stack = declared.site.stack
    assert node.check_output("kubelet --version") == f"Kubernetes v{stack.kubernetes}"
    assert node.check_output("kubeadm version -o short") == f"v{stack.kubernetes}"
    assert node.check_output("containerd --version").split()[2].lstrip("v") == stack.containerd


def test_sources_are_signed_with_keys_of_their_own(node: Host, declared: Node) -> None:
    for purpose, source in (
        ("kubernetes", declared.site.sources.kubernetes),
        ("containerd", declared.site.sources.containerd),
    ):
        file = node.file(f"/etc/apt/sources.list.d/gpurack-{purpose}.sources")
        fields = dict(
            line.split(": ", 1) for line in file.content_string.splitlines() if not line.startswith("#")
        )
        assert fields["URIs"] == source.uri
        assert "Trusted" not in fields
        keyring = fields["Signed-By"]
        assert node.file(keyring).mode == 0o644
        shown = node.check_output(f"gpg --show-keys --with-colons {keyring} 2>/dev/null")
        prints = [line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:")]
        assert prints[0] == source.key.fingerprint
    listed = node.check_output("cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || :")
    assert "trusted=yes" not in listed


def test_dpkg_is_consistent_and_nothing_was_left_undecided(node: Host) -> None:
    assert node.check_output("dpkg --audit") == ""
    assert node.run("apt-get check -q -o Debug::NoLocking=1").rc == 0
    assert (
        node.check_output("find /etc -name '*.dpkg-dist' -o -name '*.dpkg-new' -o -name '*.ucf-dist'") == ""
    )


def test_containerd_has_one_owner(node: Host) -> None:
    assert node.check_output("dpkg-query -S /usr/bin/containerd").startswith("containerd.io:")
    others = "containerd docker.io docker-ce podman cri-o moby-engine moby-containerd"
    states = node.run(f"dpkg-query -W -f '${{Package}} ${{db:Status-Status}}\\n' {others}").stdout
    assert [line for line in states.splitlines() if line.endswith(" installed")] == []
