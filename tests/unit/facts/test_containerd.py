"""The snapshot as real hosts of the lab answered it (one joined control plane, one bare host)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.containerd.models import Snapshot
from gpurack.facts.containerd import ConfigFiles, ContainerdSnapshot, parse, parse_files, parse_version

FIXTURES = Path(__file__).parent / "fixtures" / "containerd"
JOINED = (FIXTURES / "joined.txt").read_text()
BARE = (FIXTURES / "bare.txt").read_text()


def test_a_joined_host_is_read_whole() -> None:
    found = parse(JOINED)
    assert [(one.path, one.version) for one in found.binaries] == [("/usr/bin/containerd", (2, 2, 9))]
    assert found.units == {"containerd.service": "/usr/bin/containerd"}
    daemon = found.daemon
    assert daemon is not None
    assert daemon.unit == "containerd.service"
    assert daemon.config == "/etc/containerd/config.toml"
    assert found.kubelet_endpoint == "unix:///run/containerd/containerd.sock"
    assert found.cri.ready
    assert found.cri.systemd_cgroup == {"runc": True}
    assert found.containers == 14
    assert found.ran is not None
    assert (found.ran.pid, found.ran.ticks) == (daemon.pid, daemon.ticks)


def test_sockets_are_told_apart_by_process_where_there_is_more_than_one_containerd() -> None:
    said = (
        "socket=u_str LISTEN 0      4096    /run/containerd/containerd.sock 259181 * 0 "
        'users:(("containerd",pid=1087,fd=15))\n'
        "socket=u_str LISTEN 0      4096    /run/node-agent/containerd.sock 259190 * 0 "
        'users:(("containerd",pid=108,fd=15))\n'
    )
    (daemon,) = parse(JOINED + said).daemons
    assert daemon.sockets == ("/run/containerd/containerd.sock",)


def test_files_written_before_the_start_are_older_than_the_process_to_the_hundredth() -> None:
    found = parse(JOINED)
    assert found.daemon is not None
    for file in found.files.values():
        assert file.changed < found.daemon.started <= found.now


def test_files_arrive_as_they_are_and_files_that_may_hold_logins_only_as_hashes() -> None:
    found = parse(JOINED)
    assert set(found.files) == {
        "/etc/containerd/config.toml",
        "/etc/containerd/conf.d/10-lab.toml",
        "/etc/containerd/conf.d/zz-gpurack.toml",
    }
    hosts = found.digests["/etc/containerd/certs.d/registry.k8s.io/hosts.toml"]
    assert (len(hosts.sha256), hosts.mode, hosts.ours) == (64, 0o644, True)
    assert "server =" not in JOINED


def test_a_bare_host_answers_too() -> None:
    found = parse(BARE)
    assert (found.binaries, found.daemons, found.kubelet_endpoint) == ((), (), None)
    assert not found.service.found
    assert "no socket" in found.cri.error


def test_an_answer_that_was_cut_short_is_no_answer() -> None:
    for text in ("", BARE.replace("kubelet=no\n", ""), BARE + "half a li", JOINED.replace("hertz=100\n", "")):
        with pytest.raises(ValueError, match=r"wanted one|could not parse"):
            parse(text)


def test_a_note_that_was_cut_short_counts_as_none() -> None:
    assert parse(BARE + "ran=12 34\n").ran is None
    assert parse(BARE + "ran=\n").ran is None


@pytest.mark.parametrize(
    ("lines", "endpoint"),
    [
        ("kubelet=yes\n", "unix:///run/containerd/containerd.sock"),
        ('kubelet=yes\nkubelet_file="unix:///x"\n', "unix:///x"),
        (
            "kubelet=yes\nkubelet_file=unix:///x\nkubelet_argument=--container-runtime-endpoint=unix:///y\n",
            "unix:///y",
        ),
        (
            "kubelet=yes\nkubelet_argument=--container-runtime-endpoint\nkubelet_argument=unix:///z\n",
            "unix:///z",
        ),
    ],
)
def test_kubelets_endpoint_is_its_flag_then_its_file_then_the_default(lines: str, endpoint: str) -> None:
    assert parse(BARE.replace("kubelet=no\n", lines)).kubelet_endpoint == endpoint


def test_a_process_of_a_replaced_program_keeps_its_path() -> None:
    process = "pid=5\nexe=/usr/bin/containerd (deleted)\narguments=/usr/bin/containerd\t\nticks=9\n"
    text = BARE + process + "unit=\nmemlock=\n"
    (daemon,) = parse(text).daemons
    assert (daemon.exe, daemon.unit, daemon.memlock) == ("/usr/bin/containerd", None, None)


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_any_line_of_a_file_comes_back_as_it_was(line: str) -> None:
    (file,) = parse_files(f"file=1.5 /etc/a b.toml\nin=/etc/a b.toml\ntext={line}\ntext=\n").values()
    assert (file.path, file.changed, file.text) == ("/etc/a b.toml", 1.5, f"{line}\n\n")


@pytest.mark.parametrize(
    ("text", "version"),
    [("v2.2.9", (2, 2, 9)), ("1.7.12-0ubuntu4", (1, 7, 12)), ("v2.3.0-beta.1", (2, 3, 0)), ("", None)],
)
def test_versions_are_numbers(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_the_script_runs_in_dash_and_its_answer_is_understood() -> None:
    done = subprocess.run(
        ["dash", "-c", ContainerdSnapshot().command()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    if "unit_LoadState=" in done.stdout:  # a machine without systemd gives a refusal, not a snapshot
        assert isinstance(parse(done.stdout), Snapshot)
    else:
        with pytest.raises(ValueError, match="unit_LoadState"):
            parse(done.stdout)


def test_imports_outside_are_read_by_glob_and_their_names_never_become_shell(tmp_path: Path) -> None:
    (tmp_path / "a b.toml").write_text("x = 1\n")
    (tmp_path / "$(touch c).toml").write_text("y = 2\n")
    patterns = (f"{tmp_path}/a b.toml", f"{tmp_path}/$(touch {tmp_path}/c).toml", f"{tmp_path}/$*.toml")
    (tmp_path / "empty.toml").write_text("")
    script = ConfigFiles().command((*patterns, f"{tmp_path}/empty.*", f"{tmp_path}/not-there"))
    done = subprocess.run(["dash", "-c", script], capture_output=True, text=True, check=True)
    found = parse_files(done.stdout)
    assert {path.rpartition("/")[2]: file.text for path, file in found.items()} == {
        "a b.toml": "x = 1\n",
        "$(touch c).toml": "y = 2\n",
        "empty.toml": "",
    }
    assert not (tmp_path / "c").exists()
