"""certs.d: order of mirrors, logins as secrets, files of others, leftovers."""

from __future__ import annotations

import base64
import tomllib
from dataclasses import replace

import pytest

from gpurack.decide.containerd import unit
from gpurack.decide.containerd.models import Digest, Login, RegistryHosts
from gpurack.decide.containerd.registries import hosts_file, serve, sha256
from gpurack.decide.decision import Decision, Disruption, Remove, Run, Write

PATH = "/etc/containerd/certs.d/registry.k8s.io/hosts.toml"
CA = "/etc/containerd/certs.d/registry.k8s.io/ca.pem"
TWO = RegistryHosts(name="registry.k8s.io", mirrors=("https://one.example", "https://two.example:5443"))
LOGIN = Login(user="puller", password="s3cret-pass")
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def digest(path: str, text: str, mode: int = 0o644, *, ours: bool = True) -> dict[str, Digest]:
    return {path: Digest(path=path, sha256=sha256(text), mode=mode, ours=ours)}


def done(decision: Decision) -> dict[str, Digest]:
    found: dict[str, Digest] = {}
    for step in decision.steps:
        if isinstance(step, Write):
            found |= digest(step.path, step.content, step.mode)
    return found


def test_mirrors_are_asked_in_order_and_nothing_else_ever() -> None:
    table = tomllib.loads(hosts_file(TWO))
    assert list(table["host"]) == ["https://one.example"]
    assert (
        table["server"] == "https://two.example:5443"
    )  # the last one: without it containerd would ask upstream
    assert (
        table["capabilities"] == table["host"]["https://one.example"]["capabilities"] == ["pull", "resolve"]
    )


@pytest.mark.parametrize(
    ("name", "server"), [("nvcr.io", "https://nvcr.io"), ("docker.io", "https://registry-1.docker.io")]
)
def test_a_registry_without_mirrors_is_asked_itself(name: str, server: str) -> None:
    assert tomllib.loads(hosts_file(RegistryHosts(name=name, login=LOGIN)))["server"] == server


def test_the_login_and_the_certificate_go_to_every_mirror() -> None:
    table = tomllib.loads(hosts_file(replace(TWO, login=LOGIN, ca=PEM)))
    for place in (table, table["host"]["https://one.example"]):
        scheme, value = place["header"]["Authorization"].split()
        assert (scheme, base64.b64decode(value)) == ("Basic", b"puller:s3cret-pass")
        assert place["ca"] == CA


def test_a_file_with_a_login_is_secret_and_closed_and_one_without_is_open() -> None:
    (login,) = (s for s in serve([replace(TWO, login=LOGIN)], {}).steps if isinstance(s, Write))
    (plain,) = (s for s in serve([TWO], {}).steps if isinstance(s, Write))
    assert (login.mode, login.secret) == (0o600, True)
    assert (plain.mode, plain.secret) == (0o644, False)


def test_nothing_here_disturbs_a_live_node_and_a_second_run_does_nothing() -> None:
    for registry in (TWO, replace(TWO, login=LOGIN, ca=PEM)):
        first = serve([registry], {})
        assert first.disruption is Disruption.NONE
        assert serve([registry], done(first)).steps == ()


def test_the_certificate_is_there_before_the_file_that_names_it() -> None:
    steps = serve([replace(TWO, ca=PEM)], {}).steps
    assert [step.path for step in steps if isinstance(step, Write)] == [CA, PATH]


def test_a_wrong_mode_is_put_right() -> None:
    registry = replace(TWO, login=LOGIN)
    found = digest(PATH, hosts_file(registry), 0o644)
    assert [step.path for step in serve([registry], found).steps if isinstance(step, Write)] == [PATH]


def test_what_nobody_declares_any_more_is_removed_if_it_is_ours() -> None:
    found = digest(PATH, "old") | digest(CA, "old")
    decision = serve([], found)
    assert [step.path for step in decision.steps if isinstance(step, Remove)] == [CA, PATH]
    assert [step.script.split()[0] for step in decision.steps if isinstance(step, Run)] == ["rmdir"]
    assert serve([], {path: replace(one, ours=False) for path, one in found.items()}).steps == ()


@pytest.mark.parametrize("path", [unit.DROP_IN, unit.ENVIRONMENT, unit.BUNDLE, "/etc/crictl.yaml"])
def test_files_of_ours_elsewhere_are_not_registries_and_stay(path: str) -> None:
    """The snapshot brings them along; a second run once removed what the first had written."""
    first = serve([TWO], {})
    assert serve([TWO], done(first) | digest(path, "x")).steps == ()
    assert serve([], digest(path, "x")).steps == ()


def test_a_certificate_that_is_no_longer_declared_goes_and_its_registry_stays() -> None:
    first = serve([replace(TWO, ca=PEM)], {})
    steps = serve([TWO], done(first)).steps
    assert [step.path for step in steps if isinstance(step, Remove)] == [CA]
    assert [step.path for step in steps if isinstance(step, Write)] == [PATH]


def test_a_file_of_others_is_refused_unless_it_says_the_same() -> None:
    (problem,) = serve([TWO], digest(PATH, "server = 'https://x'\n", ours=False)).refused
    assert (problem.code, PATH in problem.what) == ("E-CTRD-12", True)
    assert serve([TWO], digest(PATH, hosts_file(TWO), ours=False)).steps == ()


def test_a_login_over_plain_http_is_said() -> None:
    plain = RegistryHosts(name="x", mirrors=("http://m",), login=LOGIN)
    assert "in clear" in serve([plain], {}).notes[0]
    assert serve([replace(plain, mirrors=("https://m",))], {}).notes == ()


def test_a_login_shows_in_no_repr() -> None:
    assert "s3cret" not in repr(replace(TWO, login=LOGIN))
