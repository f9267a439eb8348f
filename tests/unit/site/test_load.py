"""The document as a whole: everything at once, ranges, defaults, memory, speed, and nothing but sentences."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpurack.errors import BadInput, Problem
from gpurack.site import load
from gpurack.site.models import Site
from tests.unit.site.conftest import GOOD


def problems(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load(path)
    return caught.value.problems


def test_a_range_becomes_hosts_with_names_addresses_and_positions(site: Callable[..., Site]) -> None:
    found = site()
    assert [host.name for host in found.hosts][:4] == ["cp-1", "cp-2", "gpu-r07-01", "gpu-r07-02"]
    node = found.node("gpu-r07-08")
    assert (node.host.address, node.host.position, node.role) == ("10.0.7.18", "u08", "gpu")
    assert node.pool is not None
    assert node.pool.numa.reserved.system_memory == 8 * 2**30
    assert found.node("cp-1").pool is None


def test_all_problems_are_said_at_once_in_the_order_of_the_lines(document: Callable[..., Path]) -> None:
    found = problems(
        document(
            'kubernetes: "1.34.4"', "kubernetes: 1.34",
            "cni: bridge", "cni: Bridge",
            "memory: Static", "memory: static",
            "  r07: {power: 44000}", "  r07: {powr: 44000}",
            "name: gpu-r07-[01:08]", "name: gpu-r07-[08:01]",
            "address: 10.0.7.19", "address: 10.0.0.1",
        )
    )  # fmt: skip
    assert [problem.code for problem in found] == [
        "E-SITE-08", "E-SITE-07", "E-SITE-07", "E-SITE-04", "E-SITE-11", "E-SITE-13",
    ]  # fmt: skip
    assert all(problem.where and problem.where.line and problem.where.field for problem in found)


def test_a_problem_names_file_line_field_and_next_step(document: Callable[..., Path]) -> None:
    path = document("memory: Static", "memory: static")
    (problem,) = problems(path)
    assert problem.where is not None
    assert problem.where.file == str(path)
    assert problem.where.field == "pools.h100.numa.memory"
    assert (
        path.read_text(encoding="utf-8").splitlines()[(problem.where.line or 0) - 1].strip()
        == "memory: static"
    )
    assert problem.next == "write Static"


def test_a_field_that_failed_hides_nothing_beside_it(document: Callable[..., Path]) -> None:
    found = problems(
        document(
            "cni: bridge", "cni: calico",
            "endpoint: api.example.com:6443", "endpoint: api.example.com",
            "[10.96.0.0/16]", "[10.244.0.0/20]",
            "platform: hgx-h100-8", "platform: 8",
            "cpus: 0-1", "#cpus: 0-1",
            'etcd: "3.6.5-0"', "etcd: 3.6",
            'kubelet: "1.34.4-1.1"', 'kubelet: "1.34.5-1.1"',
            "role: control-plane", "role: control_plane",
        )
    )  # fmt: skip
    assert sorted(problem.code for problem in found) == [
        "E-SITE-07", "E-SITE-07", "E-SITE-08", "E-SITE-08",
        "E-SITE-21", "E-SITE-25", "E-SITE-40", "E-SITE-61",
    ]  # fmt: skip


def test_a_missing_document_names_those_that_exist(document: Callable[..., Path]) -> None:
    path = document()
    (problem,) = problems(path.with_name("nothing.yaml"))
    assert problem.code == "E-SITE-01"
    assert problem.found is not None
    assert "site.yaml" in problem.found


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E-SITE-02"),
        ("- a\n", "E-SITE-02"),
        ("a: [\n", "E-SITE-02"),
        ("a:\n\tb: c\n", "E-SITE-02"),
        ("a: \x00\n", "E-SITE-02"),
    ],
)
def test_what_is_no_map_is_refused(document: Callable[..., Path], text: str, code: str) -> None:
    (problem,) = problems(document(text=text))
    assert problem.code == code


def test_bytes_that_are_no_text_and_a_folder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"name: \xff\n")
    assert problems(path)[0].code == "E-SITE-01"
    (tmp_path / "folder.yaml").mkdir()
    assert problems(tmp_path / "folder.yaml")[0].code == "E-SITE-01"


def test_an_alias_that_contains_itself_is_refused(document: Callable[..., Path]) -> None:
    assert problems(document(text="a: &a [*a]\n"))[0].code == "E-SITE-02"


def test_the_shim_without_a_suffix_names_the_document_beside_it(document: Callable[..., Path]) -> None:
    path = document()
    assert load(path.with_suffix("")) is load(path)
    path.with_suffix("").write_text('site = ["@gpurack/..."]\n', encoding="utf-8")
    assert load(path.with_suffix("")) is load(path)


def test_a_site_is_remembered_until_its_document_changes(document: Callable[..., Path]) -> None:
    path = document()
    first = load(path)
    assert load(path) is first
    document("name: test\naccept", "name: other\naccept")
    assert load(path).name == "other"


def test_a_site_is_read_again_when_its_stack_or_its_fingerprint_changes(tmp_path: Path) -> None:
    start, end = GOOD.index("stack:"), GOOD.index("sources:")
    lines = GOOD[start:end].splitlines()[1:]
    stack = tmp_path / "stack.yaml"
    stack.write_text("\n".join(line[2:] for line in lines) + "\n", encoding="utf-8")
    path = tmp_path / "site.yaml"
    path.write_text(GOOD[:start] + "stack: stack.yaml\n" + GOOD[end:], encoding="utf-8")
    assert load(path).stack.images.etcd == "3.6.5-0"
    stack.write_text(stack.read_text(encoding="utf-8").replace("3.6.5-0", "3.6.6-10"), encoding="utf-8")
    assert load(path).stack.images.etcd == "3.6.6-10"


def test_a_problem_in_the_stack_file_is_shown_there(tmp_path: Path) -> None:
    start, end = GOOD.index("stack:"), GOOD.index("sources:")
    lines = GOOD[start:end].replace('"v1.12.1"', "1.10").splitlines()[1:]
    (tmp_path / "stack.yaml").write_text("\n".join(line[2:] for line in lines) + "\n", encoding="utf-8")
    path = tmp_path / "site.yaml"
    path.write_text(GOOD[:start] + "stack: stack.yaml\n" + GOOD[end:], encoding="utf-8")
    (problem,) = problems(path)
    assert problem.code == "E-SITE-08"
    assert problem.where is not None
    assert problem.where.file == str(tmp_path / "stack.yaml")
    assert problem.where.line == 10
    assert problem.found == "1.10, which is the number 1.1"


def test_a_missing_stack_file_is_shown_where_it_is_named(tmp_path: Path) -> None:
    start, end = GOOD.index("stack:"), GOOD.index("sources:")
    path = tmp_path / "site.yaml"
    path.write_text(GOOD[:start] + "stack: nothing.yaml\n" + GOOD[end:], encoding="utf-8")
    (problem,) = problems(path)
    assert (problem.code, problem.where and problem.where.field) == ("E-SITE-01", "stack")


def test_without_sources_the_vendors_serve_with_their_published_keys(site: Callable[..., Site]) -> None:
    sources = site().sources
    assert sources.kubernetes.uri == "https://pkgs.k8s.io/core:/stable:/v1.34/deb/"
    assert sources.kubernetes.key.file is None
    assert sources.kubernetes.key.fingerprint == "DE15B14486CD377B9E876E1A234654DA9A296436"
    assert sources.containerd.key.fingerprint == "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"


def test_a_fingerprint_may_be_read_from_a_file(site: Callable[..., Site], tmp_path: Path) -> None:
    source = (
        "sources:\n  kubernetes: {uri: http://10.1.0.2/apt, suite: /,"
        " key: {file: key.asc, fingerprint: 'file:fpr'}}\n"
    )
    key = site("sources:\n", source).sources.kubernetes.key
    assert key.fingerprint == "0123456789ABCDEF0123456789ABCDEF01234567"
    assert key.file == str(tmp_path / "key.asc")


def test_files_are_not_looked_at_for_the_lab_that_makes_them(document: Callable[..., Path]) -> None:
    path = document("port: 22", "key: not-made-yet")
    assert load(path, files=False).ssh.key == "not-made-yet"
    assert problems(path)[0].code == "E-SITE-52"


def test_a_lab_that_was_never_started_is_one_problem(document: Callable[..., Path]) -> None:
    state = "/var/lib/gpurack/lab/no-such-folder"
    source = (
        f"sources:\n  kubernetes: {{uri: http://10.1.0.2/apt, suite: /, key: {{file: {state}/key.asc,"
        f" fingerprint: 'file:{state}/fpr'}}}}\n"
    )
    (problem,) = problems(document("sources:\n", source, "port: 22", f"key: {state}/id"))
    assert (problem.code, problem.next) == ("E-SITE-54", "make lab")


def test_words_that_yaml_1_1_would_turn_into_something_else_stay_text(site: Callable[..., Site]) -> None:
    hardware = site("      numa_nodes: 2\n", "      numa_nodes: 2\n      iommu: off\n").pools["h100"].hardware
    assert hardware.iommu == "off"


def test_anchors_and_merges_work_and_their_problems_are_shown_where_they_were_written(
    document: Callable[..., Path], tmp_path: Path
) -> None:
    place = "    rack: r07\n    position: u09"
    words = (
        "  h100:\n", "  h100: &h100\n",
        "racks:\n", "  h200:\n    <<: *h100\n    platform: hgx-h200-8\nracks:\n",
        f"    pool: h100\n{place}", f"    pool: h200\n{place}",
    )  # fmt: skip
    pool = load(document(*words)).pools["h200"]
    assert (pool.platform, pool.hardware.gpus.count) == ("hgx-h200-8", 8)
    lines = (tmp_path / "site.yaml").read_text(encoding="utf-8").splitlines()
    found = problems(document(*words, "memory: Static", "memory: static"))
    line = 1 + next(index for index, line in enumerate(lines) if "memory: Static" in line)
    assert {problem.where.line for problem in found if problem.where} == {line}


def test_a_secret_is_not_shown_when_it_is_refused(document: Callable[..., Path]) -> None:
    for word in ('"hunter2"', "12345", "[hunter2]", "{a: hunter2}"):
        found = problems(document('"env:SUDO_PASSWORD"', word))
        assert not any("hunter2" in str(problem) or "12345" in str(problem) for problem in found)


def test_a_token_in_clear_is_not_shown_in_any_field(document: Callable[..., Path]) -> None:
    token = "abcdef." + "0123456789abcdef"
    for old in (
        "gpu-r07-09",
        "hgx-h100-8",
        "restricted",
        "8Gi",
        "api.example.com:6443",
        "10.0.7.19",
        "10.96.0.0/16",
        "800G",
    ):
        found = problems(document(old, token))
        assert "E-SITE-50" in {problem.code for problem in found}
        assert not any(token in str(problem) for problem in found), old


def test_dual_stack_is_an_explicit_pair(document: Callable[..., Path]) -> None:
    pairs = (
        "pod_cidrs: [10.244.0.0/16]", "pod_cidrs: [10.244.0.0/16, 'fd00:244::/56']",
        "service_cidrs: [10.96.0.0/16]", "service_cidrs: [10.96.0.0/16, 'fd00:96::/112']",
        '"10.0.0.[1:2]"', '["10.0.0.[1:2]", "fd00::[1:2]"]',
        "address: 10.0.7.[11:18]", 'address: "10.0.7.[11:18], fd00::7:[11:18]"',
        "address: 10.0.7.19", "address: 10.0.7.19,fd00::7:19",
    )  # fmt: skip
    host = load(document(*pairs)).node("gpu-r07-09").host
    assert host.addresses == (ip_address("10.0.7.19"), ip_address("fd00::7:19"))
    single = document(*pairs[:-1], "address: 10.0.7.19")
    assert [problem.code for problem in problems(single)] == ["E-SITE-18"]
    order = document(*pairs[:3], "service_cidrs: ['fd00:96::/112', 10.96.0.0/16]", *pairs[4:])
    assert [problem.code for problem in problems(order)] == ["E-SITE-22"]


def test_a_cluster_built_by_others_needs_no_control_plane(site: Callable[..., Site], tmp_path: Path) -> None:
    found = site(
        '  - {name: "cp-[1:2]", address: "10.0.0.[1:2]", role: control-plane}\n', "",
        "  cni: bridge", "  cni: external\n  kubeconfig: config",
    )  # fmt: skip
    assert found.cluster.kubeconfig == str(tmp_path / "config")


def test_a_thousand_hosts_are_validated_in_under_two_seconds(document: Callable[..., Path]) -> None:
    start = GOOD.index("  - name: gpu-r07-[01:08]")
    hosts = "".join(
        f"  - name: gpu-{i:04}\n    address: 10.1.{i // 250}.{i % 250 + 1}\n"
        f"    pool: h100\n    rack: r07\n    position: u{i}\n"
        for i in range(1000)
    )
    path = document("10.244.0.0/16", "172.16.0.0/12", text=GOOD[:start] + hosts)
    began = time.perf_counter()
    assert len(load(path).hosts) == 1002
    assert time.perf_counter() - began < 2


def test_a_thousand_bad_hosts_are_told_in_under_two_seconds(document: Callable[..., Path]) -> None:
    start = GOOD.index("  - name: gpu-r07-[01:08]")
    hosts = "  - {name: gpu_1, address: 10.1.0.1, pool: h10, rack: r07, position: u1}\n" * 1000
    path = document("10.244.0.0/16", "172.16.0.0/12", text=GOOD[:start] + hosts)
    began = time.perf_counter()
    assert len(problems(path)) > 3000
    assert time.perf_counter() - began < 2


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_a_damaged_document_never_raises_anything_but_bad_input(
    document: Callable[..., Path], rng: random.Random, cuts: int
) -> None:
    text = GOOD
    for _ in range(cuts):
        at, length = rng.randrange(len(text)), rng.randrange(12)
        junk = rng.choice(
            ["", "[", "]", "{", ":", "\n", "- ", "  ", '"', "0", "~", "é", "&a ", "*a", "!!int ", "<<: "]
        )
        text = text[:at] + junk + text[at + length :]
    path = document(text=text)
    told: tuple[Problem, ...] = ()
    try:
        load(path)
    except BadInput as error:
        told = error.problems
    assert all(problem.code.startswith("E-SITE-") and problem.what for problem in told)
