"""No secret leaves: not in output at the loudest, a process list, a report, a log, or a file of others.

One rack of its own, control plane and GPU node, is provisioned from bare through a jump host, with a sudo
password, a registry login and a proxy password, and watched meanwhile (watched_rack). Each test looks at one
thing that was recorded.
"""

from __future__ import annotations

import json
import re
import stat

import pytest

from gpurack.lab.network import CONTROLLER_ADDRESS
from tests.lab import harness
from tests.lab.watched import Watched
from tests.lab.watched_rack import HOSTS, JUMP

pytestmark = pytest.mark.lab


def test_every_run_did_what_it_should(watched: Watched) -> None:
    runs = {name: code for name, code in watched.seen["codes"].items() if not name.startswith("trust")}
    assert set(runs.values()) == {0}, runs
    assert "gpu_node-again" in runs


def test_second_runs_changed_nothing(watched: Watched) -> None:
    for name in ("control_plane-again", "gpu_node-again"):
        assert harness.changed(harness.Ran(0, (watched.folder / f"{name}.out").read_text(), "")) == {}, name


def test_no_host_was_talked_to_but_through_the_jump_host(watched: Watched) -> None:
    for host in HOSTS:
        journal = (watched.folder / f"journal-{host.name}.log").read_text()
        assert f"Accepted publickey for ops from {JUMP.address} " in journal
        assert f"Accepted publickey for ops from {CONTROLLER_ADDRESS} " not in journal


def test_the_watch_would_have_seen_them(watched: Watched) -> None:
    """Else the tests below could not fail."""
    seen = watched.seen
    assert len(seen["tokens"]) == 1
    assert seen["looks"] > 200
    assert seen["lines"] > 1000
    closed = {name.partition(":")[2] for name in seen["closed"]}
    assert "/run/gpurack/kubeadm-join.yaml" in closed
    assert "/etc/containerd/certs.d/registry.k8s.io/hosts.toml" in closed
    assert "/etc/containerd/gpurack.env" in closed
    assert "/etc/apt/auth.conf.d/gpurack-proxy.conf" in closed
    assert "/etc/kubernetes/pki/ca.key" in closed
    assert any(".gpurack." in name for name in closed), "no temporary file was seen"
    known = seen["known"]
    assert watched.leaks(f"password {known['sudo password']}") == ["sudo password"]
    assert watched.leaks("token abcdef.0123456789abcdef") == ["a join token"]


def test_nothing_is_said_at_any_volume(watched: Watched) -> None:
    given_away = {
        file.name: found
        for file in [*watched.folder.glob("*.out"), *watched.folder.glob("*.err")]
        if (found := watched.leaks(file.read_text(errors="replace")))
    }
    assert given_away == {}
    assert "it holds a secret" in watched.said("gpu_node")  # --diff says that it says nothing
    assert len(watched.said("gpu_node")) > 50_000, "this was not loud"


def test_a_login_that_left_the_document_is_not_shown_as_a_difference(watched: Watched) -> None:
    said = watched.said("login-gone")
    assert "hosts.toml: changes are not shown, only root may read it" in said
    assert watched.leaks(said) == []


def test_json_is_json_and_diffs_show_what_is_no_secret(watched: Watched) -> None:
    for name in ("control_plane", "gpu_node", "gpu_node-again"):
        out = (watched.folder / f"{name}.out").read_text()
        report = json.loads(out[out.index("{") :])
        assert report["results"]
    assert "+kind: KubeletConfiguration" in watched.said("gpu_node")


def test_no_process_list_shows_one(watched: Watched) -> None:
    assert watched.seen["arguments"] == {}


def test_no_secret_file_could_be_read_by_others_at_any_moment(watched: Watched) -> None:
    assert watched.seen["open"] == {}


def test_reports_logs_and_state_of_the_site_hold_none(watched: Watched) -> None:
    files = [file for file in watched.state.rglob("*") if file.is_file()]
    assert any(file.suffix == ".json" and file.parent.name == "reports" for file in files)
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 or not watched.leaks(file.read_text()), file
        if file.name != "kubeconfig":
            assert watched.leaks(file.read_text(errors="replace")) == [], file
    left = [file for file in watched.folder.rglob("pyinfra-debug.log") if watched.leaks(file.read_text())]
    assert left == []


def test_journals_of_the_hosts_hold_none(watched: Watched) -> None:
    for host in HOSTS:
        journal = (watched.folder / f"journal-{host.name}.log").read_text()
        assert "kubelet" in journal
        names = [name for name, value in watched.secrets() if value in journal]
        assert names == [], host.name


def test_the_rack_really_went_through_proxy_and_login(watched: Watched) -> None:
    """A run past proxy and registry would have had no use for the passwords."""
    proxy = watched.seen["proxy"]
    assert re.search(r"10\.77\.0\.1[12] .GET http://10\.77\.0\.2/apt/kubernetes/", proxy)
    assert re.search(r"10\.77\.0\.1[12] .CONNECT 10\.77\.0\.2:5443", proxy)
    assert re.search(r'HEAD /v2/kube-proxy/manifests/[^"]*" 200 .*containerd', watched.seen["registry"])
