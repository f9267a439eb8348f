"""What gpurack believes about containerd's files, held against the real program of the lab.

No rack is needed: the program reads files in a temporary folder. Each claim is one that decide/containerd
rests on; mechanics.md and the lab's findings are named where they are its source.
"""

from __future__ import annotations

import socket
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpurack.decide.containerd import config, edit, merge, schema, symptoms, tables
from gpurack.decide.containerd.models import ConfigFile, Wanted
from gpurack.lab import components

pytestmark = pytest.mark.lab

VERSION = (2, 2, 9)
RUNTIME = ("plugins", schema.RUNTIME)
IMAGES = ("plugins", schema.IMAGES)
WANTED = Wanted(version=VERSION, sandbox="mirror.example/pause:3.10.1")


@pytest.fixture(scope="session")
def containerd() -> Path:
    return components.ensure(["containerd"], print)["containerd"]


def dump(program: Path, root: Path) -> tuple[dict[str, Any], str, int]:
    """(effective tables, what it said, exit code) of `config dump`."""
    done = subprocess.run(
        [program, "--config", root, "config", "dump"], capture_output=True, text=True, timeout=30, check=False
    )
    return (tomllib.loads(done.stdout) if done.returncode == 0 else {}), done.stderr, done.returncode


def write(folder: Path, name: str, text: str) -> ConfigFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return ConfigFile(path=str(path), text=text)


# ------------------------------------------------------------------------- merging: the model and the truth
_flags = st.sampled_from(["enable_selinux", "disable_apparmor", "enable_cdi", "ignore_image_defined_volumes"])
_numbers = st.sampled_from(["selinux_category_range", "max_container_log_line_size"])
_names = st.sampled_from(["runc", "nvidia", "nvidia-cdi", "kata"])
_folders = st.lists(st.sampled_from(["/a", "/b", "/c"]), max_size=3)
_runtime = st.fixed_dictionaries(
    {"runtime_type": st.sampled_from(["io.containerd.runc.v2", "io.containerd.kata.v2", ""])},
    optional={
        "privileged_without_host_devices": st.booleans(),
        "pod_annotations": _folders,
        "options": st.dictionaries(
            st.sampled_from(["SystemdCgroup", "BinaryName", "NoNewKeyring"]), st.booleans(), max_size=3
        ),
    },
)
_cri = st.fixed_dictionaries(
    {},
    optional={
        "containerd": st.fixed_dictionaries(
            {}, optional={"runtimes": st.dictionaries(_names, _runtime), "default_runtime_name": _names}
        ),
        "cni": st.fixed_dictionaries(
            {}, optional={"bin_dirs": _folders, "conf_dir": st.sampled_from(["/x", ""])}
        ),
        "cdi_spec_dirs": _folders,
    },
)
_images = st.fixed_dictionaries(
    {},
    optional={
        "pinned_images": st.dictionaries(
            st.sampled_from(["sandbox", "base"]), st.sampled_from(["p:1", "p:2", ""])
        ),
        "registry": st.fixed_dictionaries({}, optional={"config_path": st.sampled_from(["/certs", ""])}),
        "max_concurrent_downloads": st.integers(0, 5),
    },
)


@st.composite
def _files(draw: st.DrawFn) -> dict[str, Any]:
    plugins: dict[str, Any] = {}
    if draw(st.booleans()):
        runtime = draw(_cri)
        runtime |= draw(st.dictionaries(_flags, st.booleans(), max_size=2))
        runtime |= draw(st.dictionaries(_numbers, st.integers(0, 3), max_size=2))
        plugins[schema.RUNTIME] = runtime
    if draw(st.booleans()):
        plugins[schema.IMAGES] = draw(_images)
    top: dict[str, Any] = {"version": 3}
    if draw(st.booleans()):
        top["disabled_plugins"] = draw(
            st.lists(st.sampled_from(["io.x.v1.a", "io.x.v1.b", "io.x.v1.c"]), max_size=3)
        )
    if draw(st.booleans()):
        top["oom_score"] = draw(st.sampled_from([0, -5, 7]))
    if draw(st.booleans()):
        top["timeouts"] = draw(
            st.dictionaries(st.sampled_from(["io.a", "io.b"]), st.sampled_from(["1s", "2s"]))
        )
    if draw(st.booleans()):
        top["debug"] = draw(
            st.fixed_dictionaries(
                {}, optional={"level": st.sampled_from(["info", "debug", ""]), "uid": st.integers(0, 2)}
            )
        )
    return {**top, "plugins": plugins}


def _leaves(table: Any, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(table, dict):
        return {above: table}
    found: dict[tuple[str, ...], Any] = {}
    for key, value in table.items():
        found |= _leaves(value, (*above, key))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=_files(), drop_ins=st.lists(_files(), max_size=2))
def test_the_merge_model_says_what_containerd_dumps(
    containerd: Path, tmp_path: Path, root: dict[str, Any], drop_ins: list[dict[str, Any]]
) -> None:
    for old in tmp_path.glob("conf.d/*.toml"):
        old.unlink()
    root = {**root, "imports": [f"{tmp_path}/conf.d/*.toml"]}
    files = {}
    for name, table in [("root.toml", root), *((f"conf.d/{n}.toml", one) for n, one in enumerate(drop_ins))]:
        file = write(tmp_path, name, tomlkit.dumps(table))
        files[file.path] = file
    path = str(tmp_path / "root.toml")
    ours = merge.effective(VERSION, path, files)
    theirs, said, code = dump(containerd, Path(path))
    assert code == 0, said
    for key, value in _leaves({k: v for k, v in ours.items() if k != "imports"}).items():
        if key[:1] == ("oom_score",) and not value:
            continue  # a zero is left out: containerd keeps its own default
        found = tables.get(theirs, key)
        assert found == value, (tables.shown(key), found, value, theirs.get("imports"))
    imports = [one for one in theirs["imports"] if one != config.IMPORT]  # the default's entry comes first
    assert imports == ours["imports"]


# ------------------------------------------------------------------------------------------- single claims
def test_our_files_are_accepted_without_a_word_and_win_over_the_toolkits_drop_in(
    containerd: Path, tmp_path: Path
) -> None:
    plan = config.plan(WANTED, {})
    root = plan.texts[config.ROOT].replace(config.CONF_D, str(tmp_path / "conf.d"))
    write(tmp_path, "conf.d/zz-gpurack.toml", plan.texts[config.DROP_IN])
    frozen = {
        "version": 3,
        "plugins": {
            schema.RUNTIME: {
                "containerd": {
                    "runtimes": {
                        name: {"runtime_type": schema.RUNC, "options": {"SystemdCgroup": False}}
                        for name in ("runc", "nvidia")
                    }
                }
            }
        },
    }
    write(tmp_path, "conf.d/99-nvidia.toml", tomlkit.dumps(frozen))
    write(tmp_path, "config.toml", root)
    tables_found, said, code = dump(containerd, tmp_path / "config.toml")
    assert (code, said) == (0, "")
    for key, value in config.wanted_keys(WANTED).items():
        assert tables.get(tables_found, key) == value
    runtimes = tables.get(tables_found, (*RUNTIME, "containerd", "runtimes"))
    assert runtimes["nvidia"]["options"]["SystemdCgroup"] is False  # of others: kept as it is


def test_containerds_own_default_is_edited_in_place_and_every_other_line_stays(
    containerd: Path, tmp_path: Path
) -> None:
    text = subprocess.run(
        [containerd, "config", "default"], capture_output=True, text=True, check=True
    ).stdout
    plan = config.plan(WANTED, {config.ROOT: ConfigFile(path=config.ROOT, text=text)})
    edited = plan.texts[config.ROOT]
    gone = set(text.splitlines()) - set(edited.splitlines())
    assert {line.split("=")[0].strip() for line in gone} == {"SystemdCgroup", "sandbox", "config_path"}
    assert plan.kept is None
    write(tmp_path, "config.toml", edited)
    found, said, code = dump(containerd, tmp_path / "config.toml")
    assert (code, said) == (0, "")
    for key, value in config.wanted_keys(WANTED).items():
        assert tables.get(found, key) == value


SCHEMA_2 = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "example.test/pause:9"
enable_selinux = true
stream_server_port = "1234"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "/x"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/certs"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
sandbox_mode = "podsandbox"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
[plugins."io.containerd.nri.v1.nri"]
disable = true
"""


def test_raising_schema_2_gives_what_containerd_itself_makes_of_it(containerd: Path, tmp_path: Path) -> None:
    write(tmp_path, "old.toml", SCHEMA_2)
    write(tmp_path, "new.toml", edit.fresh(schema.raised(tomllib.loads(SCHEMA_2), 3)))
    old, _, old_code = dump(containerd, tmp_path / "old.toml")
    new, said, new_code = dump(containerd, tmp_path / "new.toml")
    assert (old_code, new_code, said) == (0, 0, "")
    assert new == old


@pytest.mark.parametrize(
    ("text", "key", "row"),
    [
        ("version = 3\nnot_a_key = 1\n", ("not_a_key",), 2),
        (f"version = 3\n[plugins.'{schema.RUNTIME}']\nnot_a_key = 1\n", (*RUNTIME, "not_a_key"), 3),
        (
            f"version = 3\n[plugins.'{schema.RUNTIME}'.containerd.runtimes.x]\nruntime_typo = 'y'\n",
            (*RUNTIME, "containerd", "runtimes", "x", "runtime_typo"),
            3,
        ),
    ],
)
def test_unknown_keys_are_found_in_what_containerd_says(
    containerd: Path, tmp_path: Path, text: str, key: tuple[str, ...], row: int
) -> None:
    file = write(tmp_path, "config.toml", text)
    _, said, code = dump(containerd, tmp_path / "config.toml")
    assert code == 0
    (problem,) = symptoms.unknown_keys(said.splitlines(), {file.path: file})
    assert problem.where is not None
    assert (problem.where.file, problem.where.line, problem.where.field) == (
        file.path,
        row,
        tables.shown(key),
    )


def test_a_dump_hides_a_missing_import_and_the_daemon_dies_of_it(containerd: Path, tmp_path: Path) -> None:
    write(tmp_path, "config.toml", f'version = 3\nimports = ["{tmp_path}/not-there.toml"]\n')
    assert dump(containerd, tmp_path / "config.toml")[2] == 0
    started = start(containerd, tmp_path)
    assert started.wait(10) != 0
    assert started.stderr is not None
    assert "not-there.toml: no such file or directory" in started.stderr.read().decode()


def test_a_file_without_version_is_read_as_the_newest_schema(containerd: Path, tmp_path: Path) -> None:
    """The lab's finding against mechanics.md R88, which says schema 1."""
    write(tmp_path, "config.toml", SCHEMA_2.removeprefix("version = 2\n"))
    found, said, code = dump(containerd, tmp_path / "config.toml")
    assert code == 0
    assert "Ignoring unknown key in TOML for plugin" in said
    assert tables.get(found, (*IMAGES, "pinned_images", "sandbox")) == "registry.k8s.io/pause:3.10.1"


def test_short_names_are_fatal_only_in_a_file_that_states_its_version(
    containerd: Path, tmp_path: Path
) -> None:
    names = sorted(schema._SHORT)
    write(tmp_path, "config.toml", f"disabled_plugins = {names}\n")
    found, _, code = dump(containerd, tmp_path / "config.toml")
    assert code == 0
    assert found["disabled_plugins"] == schema.full_names(names)
    write(tmp_path, "config.toml", f"version = 3\ndisabled_plugins = {names}\n")
    assert dump(containerd, tmp_path / "config.toml")[2] != 0


def test_o_12_another_schema_in_a_drop_in_loses_settings_or_the_daemon(
    containerd: Path, tmp_path: Path
) -> None:
    write(
        tmp_path,
        "config.toml",
        SCHEMA_2.replace("version = 2", f'version = 2\nimports = ["{tmp_path}/d.toml"]'),
    )
    write(tmp_path, "d.toml", "version = 3\n")
    found, _, code = dump(containerd, tmp_path / "config.toml")
    assert code == 0
    assert tables.get(found, (*IMAGES, "pinned_images", "sandbox")) != "example.test/pause:9"  # lost
    write(tmp_path, "d.toml", "version = 4\n")
    _, said, code = dump(containerd, tmp_path / "config.toml")
    assert code != 0
    assert "expected containerd config version equal to or less than" in said


@pytest.mark.parametrize(
    ("broken", "symptom"),
    [
        (
            "[plugins.'io.containerd.cri.v1.images'.registry.mirrors.x]\nendpoint = ['https://y']\n",
            "`mirrors` cannot be set",
        ),
        (
            "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dir = '/a'\nbin_dirs = ['/b']\n",
            "cannot be set at the same time",
        ),
        (
            "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'gone'\n",
            "no corresponding runtime",
        ),
    ],
)
def test_what_we_refuse_before_a_restart_really_keeps_cri_from_loading(
    containerd: Path, tmp_path: Path, broken: str, symptom: str
) -> None:
    keys = {**config.wanted_keys(WANTED), ("version",): 3}
    text = edit.fresh(edit.nested(keys)) + "\n" + broken
    assert config.plan(WANTED, {config.ROOT: ConfigFile(path=config.ROOT, text=text)}).refused
    write(tmp_path, "config.toml", text)
    assert dump(containerd, tmp_path / "config.toml")[2] == 0  # a dump says nothing of it
    started = start(containerd, tmp_path)
    said = _until_serving(started, tmp_path)
    assert symptom in said


def start(program: Path, folder: Path) -> subprocess.Popen[bytes]:
    arguments = ["--config", folder / "config.toml", "--root", folder / "root", "--state", folder / "state"]
    return subprocess.Popen(
        [program, *arguments, "--address", folder / "s.sock"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


def _until_serving(started: subprocess.Popen[bytes], folder: Path) -> str:
    """What the daemon said until it answered on its socket; it is ended then."""
    await_socket(started, folder)
    started.terminate()
    return started.communicate(timeout=20)[1].decode()


def await_socket(started: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and started.poll() is None:
        with socket.socket(socket.AF_UNIX) as one:
            try:
                one.connect(str(folder / "s.sock"))
            except OSError:
                time.sleep(0.1)
            else:
                return
