"""The unit drop-in and the environment: limits, proxy, certificates."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpurack.decide.containerd import unit, wishes
from gpurack.decide.containerd.models import Wanted
from gpurack.site.models import (
    AptSource,
    Cluster,
    Host,
    Images,
    Packages,
    SigningKey,
    Site,
    Sources,
    Stack,
)
from tests.unit.decide.containerd.found import WANTED

KEY = SigningKey(file="/k.asc", fingerprint="0" * 40)
APT = AptSource(uri="http://apt.example", suite="/", key=KEY)
PACKAGES = Packages(
    kubelet="1", kubeadm="1", kubectl="1", cri_tools="1", kubernetes_cni="1", containerd_io="1"
)


def site(*names: str) -> Site:
    hosts = tuple(
        Host(name=name, addresses=(f"10.0.0.{n}",), role="control-plane" if name.startswith("cp") else "gpu")
        for n, name in enumerate(names, 1)
    )
    return Site(
        name="s",
        file="/site.yaml",
        stack=Stack(
            kubernetes="1.34.4",
            containerd="2.2.9",
            packages=PACKAGES,
            images=Images(pause="3.10.1", etcd="3", coredns="1"),
        ),
        sources=Sources(
            kubernetes=APT,
            containerd=APT,
            image_repository="mirror.example/k8s",
            no_proxy=(".example", ".svc"),
        ),
        cluster=Cluster(
            name="c",
            endpoint="api.example:6443",
            pod_cidrs=("10.244.0.0/16", "fd00::/48"),
            service_cidrs=("10.96.0.0/16",),
            cni="bridge",
        ),
        hosts=hosts,
    )


def wanted(host: str, *names: str, proxy: str | None = "http://proxy:3128") -> Wanted:
    return wishes.wanted(site(*names).node(host), proxy=proxy, ca_bundle=None, registries=())


def test_the_stack_decides_version_and_pause_image_under_the_sites_repository() -> None:
    made = wanted("gpu-1", "cp-1", "gpu-1")
    assert (made.version, made.sandbox) == ((2, 2, 9), "mirror.example/k8s/pause:3.10.1")


def test_what_belongs_to_the_cluster_is_reached_without_the_proxy() -> None:
    entries = wanted("gpu-1", "cp-1", "gpu-1").no_proxy
    for entry in ("localhost", "127.0.0.1", "::1", ".svc", ".cluster.local", "10.244.0.0/16", "fd00::/48"):
        assert entry in entries
    for entry in ("10.96.0.0/16", "api.example", "10.0.0.1", "10.0.0.2", ".example"):
        assert entry in entries
    assert len(entries) == len(set(entries))


def test_a_host_more_in_the_site_restarts_no_containerd() -> None:
    assert wanted("gpu-1", "cp-1", "gpu-1") == wanted("gpu-1", "cp-1", "gpu-1", "gpu-2", "gpu-3")


def test_without_proxy_and_bundle_there_is_no_environment_file() -> None:
    assert unit.environment(wanted("gpu-1", "cp-1", "gpu-1", proxy=None)) is None


def test_a_bundle_is_trusted_beside_the_hosts_own_certificates() -> None:
    bundle = replace(WANTED, ca_bundle="-----BEGIN CERTIFICATE-----\nx\n")
    assert 'SSL_CERT_DIR="/etc/ssl/certs:/etc/containerd/trust"\n' in str(unit.environment(bundle))
    text, mode = unit.wanted_files(bundle)[unit.BUNDLE]
    assert (str(text).endswith("-----BEGIN CERTIFICATE-----\nx\n"), mode) == (True, 0o644)


def test_the_limits_are_those_of_r76_and_r101() -> None:
    lines = unit.DROP_IN_TEXT.splitlines()
    for line in ("[Service]", "LimitMEMLOCK=infinity", "LimitNOFILE=65536:524288"):
        assert line in lines
    assert f"EnvironmentFile=-{unit.ENVIRONMENT}" in lines


def test_a_proxy_with_a_login_never_stands_in_the_unit_which_every_user_may_read() -> None:
    made = replace(WANTED, proxy="http://user:pass%40word@proxy:3128")
    for path, (text, mode) in unit.wanted_files(made).items():
        assert ("pass%40word" in str(text)) is (path == unit.ENVIRONMENT)
        assert mode == (0o600 if path == unit.ENVIRONMENT else 0o644)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30))
def test_any_proxy_survives_the_quoting_of_the_environment_file(tmp_path: Path, proxy: str) -> None:
    """A POSIX shell takes the same escapes inside double quotes as systemd does (systemd.exec)."""
    file = tmp_path / "env"
    file.write_text(str(unit.environment(replace(WANTED, proxy=proxy))))
    done = subprocess.run(
        ["dash", "-c", '. "$1"; printf %s "$HTTPS_PROXY"', "-", file],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == proxy


@pytest.mark.parametrize("path", [unit.DROP_IN, unit.ENVIRONMENT, unit.BUNDLE])
def test_each_file_says_whose_it_is(path: str) -> None:
    made = replace(WANTED, proxy="http://p", ca_bundle="x")
    assert str(unit.wanted_files(made)[path][0]).startswith("# Managed by gpurack (role containerd)")
