"""What becomes of the TOML files: field bugs O-12 to O-18 and O-86, and what must survive."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.containerd import config, edit, merge, schema, tables
from gpurack.decide.containerd.models import ConfigFile
from tests.unit.decide.containerd.found import WANTED, files, fixture

RUNTIME = ("plugins", schema.RUNTIME)
RUNTIMES = (*RUNTIME, "containerd", "runtimes")
V23 = replace(WANTED, version=(2, 3, 1))
V17 = replace(WANTED, version=(1, 7, 28))


def codes(plan: config.Plan) -> list[str]:
    return [problem.code for problem in plan.refused]


def after(plan: config.Plan, given_files: dict[str, ConfigFile]) -> dict[str, ConfigFile]:
    return {**given_files, **{path: ConfigFile(path=path, text=text) for path, text in plan.texts.items()}}


@pytest.mark.parametrize(
    ("wanted", "number"), [(WANTED, 3), (V23, 4), (replace(WANTED, version=(2, 0, 5)), 3)]
)
def test_a_fresh_host_gets_both_files_in_the_schema_of_the_pinned_version(
    wanted: config.Wanted, number: int
) -> None:
    plan = config.plan(wanted, {})
    assert list(plan.texts) == [config.ROOT, config.DROP_IN]  # root first: an older drop-in does no harm then
    for text in plan.texts.values():
        assert text.startswith("# Managed by gpurack (role containerd)")
        assert tomllib.loads(text)["version"] == number
    root = tomllib.loads(plan.texts[config.ROOT])
    assert root["imports"] == ["/etc/containerd/conf.d/*.toml"]
    assert tables.get(root, (*RUNTIMES, "runc")) == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"SystemdCgroup": True},
    }
    assert tables.get(root, ("plugins", schema.IMAGES, "pinned_images", "sandbox")) == WANTED.sandbox
    assert (
        tables.get(root, ("plugins", schema.IMAGES, "registry", "config_path")) == "/etc/containerd/certs.d"
    )


def test_containerd_1_gets_everything_in_one_file_of_schema_2() -> None:
    plan = config.plan(V17, {})
    root = tomllib.loads(plan.texts[config.ROOT])
    assert list(plan.texts) == [config.ROOT]
    assert (root["version"], "imports" in root) == (2, False)
    assert root["plugins"][schema.CRI]["sandbox_image"] == WANTED.sandbox


def test_what_a_first_run_writes_a_second_run_leaves_alone() -> None:
    for wanted in (WANTED, V23, V17):
        first = config.plan(wanted, {})
        second = config.plan(wanted, after(first, {}))
        assert (dict(second.texts), second.reasons) == ({}, ())


@pytest.mark.parametrize("wanted", [WANTED, V23])
def test_o_12_another_schema_in_a_drop_in_is_refused_with_both_files_and_both_versions(
    wanted: config.Wanted,
) -> None:
    given_files = files(root=fixture("o_12_root.toml"), conf_99_nvidia=fixture("o_12_drop_in.toml"))
    plan = config.plan(wanted, given_files)
    assert not plan.texts
    text = "\n".join(map(str, plan.refused))
    assert "/etc/containerd/conf.d/99-nvidia.toml" in text
    assert "version = 4" in text
    if wanted is V23:
        assert codes(plan) == ["E-CTRD-03"]
        assert "/etc/containerd/config.toml: version = 2" in text
        assert "RUNTIME_CONFIG_SOURCE=file" in text


def test_o_12_twin_the_same_schema_in_both_files_is_accepted() -> None:
    drop_in = fixture("o_12_drop_in.toml").replace("version = 4", "version = 3")
    root = fixture("o_12_root.toml").replace("version = 2", "version = 3")
    assert not config.plan(WANTED, files(root=root, conf_99_nvidia=drop_in)).refused


def test_a_drop_in_of_an_older_schema_is_fine_where_containerd_migrates_it_by_itself() -> None:
    root = config.plan(V23, {}).texts[config.ROOT]
    drop_in = fixture("o_12_drop_in.toml").replace("version = 4", "version = 3")
    plan = config.plan(V23, files(root=root, conf_99_nvidia=drop_in))
    assert not plan.refused
    assert tables.get(plan.after, (*RUNTIMES, "nvidia", "runtime_type")) == "io.containerd.runc.v2"


def test_a_root_of_schema_2_is_not_raised_away_from_a_drop_in_of_schema_2() -> None:
    plan = config.plan(WANTED, files(root=fixture("o_12_root.toml"), conf_50_site="version = 2\n"))
    assert codes(plan) == ["E-CTRD-03"]
    assert plan.refused[0].where is not None
    assert plan.refused[0].where.file == "/etc/containerd/conf.d/50-site.toml"


def test_o_13_an_import_that_wipes_a_section_of_containerd_1_is_refused_with_what_is_lost() -> None:
    given_files = files(root=fixture("o_13_root.toml"))
    path = "/etc/containerd/config.d/mirrors.toml"
    given_files[path] = ConfigFile(path=path, text=fixture("o_13_drop_in.toml"))
    plan = config.plan(V17, given_files)
    wiped = next(problem for problem in plan.refused if problem.code == "E-CTRD-14")
    assert path in wiped.what
    assert "containerd.runtimes.nvidia.options.BinaryName" in str(wiped.found)
    assert "SystemdCgroup" in str(wiped.found)


def test_o_13_the_same_files_merge_under_containerd_2() -> None:
    first = {"version": 3, "plugins": {"a": {"x": {"one": 1}}}}
    second = {"version": 3, "plugins": {"a": {"x": {"two": 2}}}}
    assert merge.merged((1, 7, 28), [first, second])["plugins"] == {"a": {"x": {"two": 2}}}
    assert merge.merged((2, 2, 9), [first, second])["plugins"] == {"a": {"x": {"one": 1, "two": 2}}}


def test_o_14_our_import_is_added_behind_the_customers_and_only_once() -> None:
    given_files = files(root=fixture("o_14_root.toml"))
    plan = config.plan(WANTED, given_files)
    imports = ["/etc/containerd/site.d/*.toml", "/etc/containerd/conf.d/*.toml"]
    assert tomllib.loads(plan.texts[config.ROOT])["imports"] == imports
    assert not config.plan(WANTED, after(plan, given_files)).texts


@pytest.mark.parametrize(
    "covering", ["/etc/containerd/conf.d/*.toml", "conf.d/*.toml", "/etc/containerd/*.d/*"]
)
def test_o_14_an_import_that_covers_our_folder_already_is_recognised(covering: str) -> None:
    root = f'version = 3\nimports = ["{covering}"]\n'
    plan = config.plan(WANTED, files(root=root))
    assert tomllib.loads(plan.texts[config.ROOT])["imports"] == [covering]


@pytest.mark.parametrize(
    "missing", ["/etc/containerd/conf.d/99-*.toml", "/etc/containerd/conf.d", "conf.d/*.tml"]
)
def test_o_14_twin_an_import_that_does_not_cover_it_gets_ours_beside_it(missing: str) -> None:
    file = f'version = 3\nimports = ["{missing}"]\n'
    given_files = files(root=file)
    given_files |= {"/etc/containerd/conf.d": ConfigFile(path="/etc/containerd/conf.d", text="version = 3\n")}
    plan = config.plan(WANTED, given_files)
    assert tomllib.loads(plan.texts[config.ROOT])["imports"] == [missing, config.IMPORT]


DEFAULT_ON_CGROUPFS = """[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'n'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.n]
runtime_type = 'io.containerd.runc.v2'
"""

# The excerpt, with the rest that its file must have had.
O_15 = (
    "version = 2\n"
    + fixture("o_15_root.toml")
    + """[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
SystemdCgroup = true
"""
)


def test_o_15_runtimes_and_default_of_others_survive_in_every_schema() -> None:
    for wanted in (WANTED, V23, V17):
        plan = config.plan(wanted, files(root=O_15))
        assert not plan.refused
        where = (*schema.runtime_table(schema.wanted_by(wanted.version)), "containerd")
        containerd = tables.get(plan.after, where)
        assert containerd["default_runtime_name"] == "nvidia"
        assert set(containerd["runtimes"]) == {"nvidia", "nvidia-cdi", "runc"}
        assert "nvidia" not in " ".join(plan.reasons)  # the diff shown lists only our keys
    assert "nvidia-cdi" in " ".join(plan.notes)  # no SystemdCgroup: said, not touched


def test_o_15_verbatim_without_a_version_the_tables_are_ignored_by_containerd_so_it_is_refused() -> None:
    plan = config.plan(WANTED, files(root=fixture("o_15_root.toml")))
    assert codes(plan) == ["E-CTRD-03"]
    assert plan.refused[0].where is not None
    assert plan.refused[0].where.line == 1


def test_a_file_raised_to_another_schema_is_laid_aside_whole() -> None:
    plan = config.plan(WANTED, files(root=O_15))
    assert plan.kept == O_15
    assert schema.CRI not in plan.texts[config.ROOT]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ('disabled_plugins = ["cri"]', []),
        ('disabled_plugins = ["io.containerd.grpc.v1.cri"]', []),
        ('disabled_plugins = ["cri", "aufs"]', ["io.containerd.snapshotter.v1.aufs"]),
        ('#disabled_plugins = ["cri"]', None),
    ],
)
def test_o_16_only_the_cri_entry_leaves_the_list_of_disabled_plugins(
    line: str, left: list[str] | None
) -> None:
    plan = config.plan(
        WANTED, files(root=fixture("packaged.toml").replace('disabled_plugins = ["cri"]', line))
    )
    root = plan.texts[config.ROOT]
    assert tomllib.loads(root).get("disabled_plugins") == left
    assert any("disables the CRI plugin" in reason for reason in plan.reasons) is (left is not None)
    assert ('#disabled_plugins = ["cri"]' in root) is (left is None)


def test_o_16_a_drop_in_of_others_that_disables_cri_is_refused_because_nothing_can_take_it_back() -> None:
    drop_in = f'version = 3\ndisabled_plugins = ["{schema.CRI}"]\n'
    root = config.plan(WANTED, {}).texts[config.ROOT]
    assert codes(config.plan(WANTED, files(root=root, conf_10_site=drop_in))) == ["E-CTRD-15"]


def test_o_16_comments_of_the_packaged_file_stay() -> None:
    text = fixture("packaged.toml")
    edited = config.plan(WANTED, files(root=text)).texts[config.ROOT]
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert [line for line in edited.splitlines() if line.startswith("#")] == comments


def test_o_17_one_value_flips_and_every_other_line_stays() -> None:
    text = fixture("o_17_root.toml")
    plan = config.plan(WANTED, files(root=text))
    edited = plan.texts[config.ROOT]
    lines = edited.splitlines()
    for line in text.splitlines():
        assert line.replace("SystemdCgroup = false", "SystemdCgroup = true") in lines
    assert "SystemdCgroup = false" not in edited
    assert schema.CRI not in edited
    assert plan.kept is None
    assert tables.get(tomllib.loads(edited), (*RUNTIME, "cni", "bin_dir")) == "/opt/cni/bin"


def test_o_18_the_same_table_twice_is_refused_with_both_lines() -> None:
    plan = config.plan(WANTED, files(root=fixture("o_18_root.toml")))
    (problem,) = plan.refused
    assert problem.code == "E-CTRD-02"
    assert "lines 1 and 3" in problem.what
    assert problem.where is not None
    assert (problem.where.file, problem.where.line) == (config.ROOT, 3)


def test_o_18_twin_two_different_tables_are_fine() -> None:
    text = fixture("o_18_root.toml").replace(
        '"cache.example.test".tls]\ninsecure', '"other.example.test".tls]\ninsecure'
    )
    assert "E-CTRD-02" not in codes(config.plan(WANTED, files(root=text)))


@given(st.lists(st.booleans(), min_size=3, max_size=6))
def test_o_18_switching_an_option_on_and_off_never_makes_a_table_twice(switches: list[bool]) -> None:
    text = fixture("packaged.toml")
    for on in switches:
        wanted = replace(WANTED, sandbox="a/pause:1" if on else "b/pause:2")
        plan = config.plan(wanted, files(root=text))
        assert not plan.refused
        text = plan.texts.get(config.ROOT, text)
        assert (
            tables.get(tomllib.loads(text), ("plugins", schema.IMAGES, "pinned_images", "sandbox"))
            == wanted.sandbox
        )
    assert text.count("pinned_images") == 1


def test_o_86_a_runtime_without_a_type_is_refused_with_runtime_and_file() -> None:
    plan = config.plan(WANTED, files(root=fixture("o_86_root.toml")))
    (problem,) = plan.refused
    assert problem.code == "E-CTRD-06"
    assert "nvidia" in problem.what
    assert problem.where is not None
    assert (problem.where.file, problem.where.line) == (config.ROOT, 2)


def test_o_86_twin_with_its_type_it_is_accepted() -> None:
    table = f"[plugins.'{schema.RUNTIME}'.containerd.runtimes.nvidia]\nruntime_type = '{schema.RUNC}'\n"
    assert not config.plan(WANTED, files(root=fixture("o_86_root.toml") + table)).refused


def test_our_drop_in_wins_over_the_toolkits_frozen_copy_of_the_runtime_section() -> None:
    frozen = (
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n"
        "runtime_type = 'io.containerd.runc.v2'\noptions = {SystemdCgroup = false}\n"
    )
    root = config.plan(WANTED, {}).texts[config.ROOT]
    plan = config.plan(WANTED, files(root=root, conf_99_nvidia=frozen))
    assert list(plan.texts) == [config.DROP_IN]
    assert tables.get(plan.after, (*RUNTIMES, "runc", "options", "SystemdCgroup")) is True


def test_a_file_that_is_loaded_after_ours_and_says_otherwise_is_named() -> None:
    late = "version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'other:1'\n"
    plan = config.plan(WANTED, files(root=config.plan(WANTED, {}).texts[config.ROOT], conf_zzz_site=late))
    (problem,) = plan.refused
    assert (problem.code, problem.found, problem.wanted) == ("E-CTRD-15", "other:1", WANTED.sandbox)
    assert "zzz-site.toml" in problem.what


def test_a_root_file_that_the_toolkit_wrote_anew_is_as_good_as_ours() -> None:
    """R92: it sorts keys and drops comments; only values count."""
    first = config.plan(WANTED, {})
    root = tomllib.loads(first.texts[config.ROOT])
    rewritten = edit.fresh(dict(reversed(list(root.items()))))
    assert rewritten != first.texts[config.ROOT]
    assert not config.plan(WANTED, after(first, {}) | files(root=rewritten)).texts


def test_a_broken_file_is_refused_with_its_place_wherever_it_is_imported_from() -> None:
    root = config.plan(WANTED, {}).texts[config.ROOT]
    (problem,) = config.plan(WANTED, files(root=root, conf_10_site="version = 3\nfoo = [\n")).refused
    assert problem.code == "E-CTRD-01"
    assert problem.where is not None
    assert problem.where.file == "/etc/containerd/conf.d/10-site.toml"
    assert problem.where.line in (2, 3)


def test_our_own_drop_in_is_written_anew_when_it_is_broken() -> None:
    root = config.plan(WANTED, {}).texts[config.ROOT]
    plan = config.plan(WANTED, files(root=root, conf_zz_gpurack="version = ["))
    assert (list(plan.texts), plan.unreadable, plan.refused) == ([config.DROP_IN], True, ())


def test_an_import_by_name_that_is_not_there_is_refused() -> None:
    """`config dump` hides it, the daemon dies of it (tests/lab/test_containerd_claims.py)."""
    root = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml", "/srv/site.toml"]\n'
    (problem,) = config.plan(WANTED, files(root=root)).refused
    assert (problem.code, "/srv/site.toml" in problem.what) == ("E-CTRD-05", True)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "[plugins.'io.containerd.cri.v1.images'.registry.mirrors.'x']\nendpoint = ['https://y']\n",
            "E-CTRD-08",
        ),
        ("[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dir = '/a'\nbin_dirs = ['/b']\n", "E-CTRD-09"),
        ("[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'gone'\n", "E-CTRD-07"),
        (DEFAULT_ON_CGROUPFS, "E-CTRD-18"),
    ],
)
def test_what_keeps_cri_from_loading_is_refused_before_a_restart(text: str, code: str) -> None:
    (problem,) = config.plan(WANTED, files(root="version = 3\n" + text)).refused
    assert problem.code == code
    assert problem.where is not None
    assert problem.where.file == config.ROOT


@pytest.mark.parametrize(
    "text",
    [
        "[plugins.'io.containerd.cri.v1.images'.registry.headers]\nx = ['y']\n",
        "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/b']\n",
        "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'runc'\n",
    ],
)
def test_twins_of_those_are_accepted(text: str) -> None:
    assert not config.plan(WANTED, files(root="version = 3\n" + text)).refused


def test_folders_of_others_stay_on_the_registry_path_behind_ours() -> None:
    table = f"[plugins.'{schema.IMAGES}'.registry]\nconfig_path = '/srv/certs:/etc/docker/certs.d'\n"
    text = "version = 3\n" + table
    plan = config.plan(WANTED, files(root=text))
    key = ("plugins", schema.IMAGES, "registry", "config_path")
    wanted = "/etc/containerd/certs.d:/srv/certs:/etc/docker/certs.d"
    assert tables.get(tomllib.loads(plan.texts[config.ROOT]), key) == wanted


@pytest.mark.parametrize(
    "key", ["[grpc]\naddress = '/x'", "[debug]\naddress = '/x'", "[metrics]\naddress = ':1'"]
)
def test_tables_that_schema_4_does_not_read_are_not_left_behind(key: str) -> None:
    root = f"version = 3\n{key}\n"
    assert codes(config.plan(V23, files(root=root))) == ["E-CTRD-19"]
    assert not config.plan(WANTED, files(root=root)).refused


def test_a_newer_schema_than_the_release_reads_is_refused() -> None:
    assert codes(config.plan(WANTED, files(root="version = 4\n"))) == ["E-CTRD-04"]
    assert not config.plan(V23, files(root="version = 4\n")).refused
