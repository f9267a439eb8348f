"""What stock pyinfra answers with exit 0 and nothing done, or with a traceback (knowledge/pyinfra.md, 2)."""

from __future__ import annotations

import shutil

from tests.contract.trio import PORT, Trio

CASES = {
    "a mistyped inventory": (["inventories/bnech", "deploy.py", "--yes"], "there is no such file or host"),
    "a mistyped limit": (
        ["inventories/bench", "deploy.py", "--yes", "--limit", "gpu-9"],
        "--limit gpu-9: no host",
    ),
    "a mistyped exclude": (
        ["inventories/bench", "deploy.py", "--yes", "--exclude", "smal"],
        "--exclude smal: no host",
    ),
    "everything excluded": (["inventories/bench", "deploy.py", "--yes", "--exclude", "bench"], "no host of"),
    "nobody to ask": (["inventories/bench", "deploy.py"], "add --yes"),
    "the document itself": (["inventories/bench.yaml", "deploy.py", "--yes"], "is a site document"),
    "a bad document": (["inventories/bad", "deploy.py", "--yes"], "inventories/bad.yaml:4"),
    "no host in a group": (["inventories/none", "deploy.py", "--yes"], "it names no host"),
}


def test_each_ends_in_exit_1_and_one_clear_line(trio: Trio) -> None:
    trio.deploy("raise SystemExit('must never be reached')")
    shutil.copy("config.py", trio.folder / "config.py")
    bad = trio.document.read_text().replace("stack:\n", "stakc:\n", 1)
    (trio.folder / "inventories" / "bad.yaml").write_text(bad)
    (trio.folder / "inventories" / "bad").write_text('bad = [f"@gpurack/{__file__}.yaml"]\n')
    (trio.folder / "inventories" / "none").write_text("none = []\n")
    running = {name: trio.popen(*arguments) for name, (arguments, _) in CASES.items()}
    for name, process in running.items():
        result = trio.finish(process)
        text = result.out + result.err
        assert result.code == 1, name
        assert CASES[name][1] in text, f"{name}: {text}"
        assert "Traceback" not in text, name
        assert "must never be reached" not in text, name
    assert not (trio.folder / "pyinfra-debug.log").exists()


def test_limits_by_host_pool_rack_and_role_and_the_plain_inventory_work(trio: Trio) -> None:
    deploy = trio.deploy("""
@operation()
@guarded
def put():
    yield from carry_out(Decision(reason="because", steps=(Write(path=f"{BASE}/file", content="x"),)))

put(name="put")
""")
    gpu = trio.popen("inventories/bench", deploy, "--yes", "--limit", "gpu")
    inventory = trio.popen("inventories/bench", "debug-inventory", "--json")
    assert trio.finish(gpu).code == 0
    assert [trio.on(name, "file").exists() for name in ("cp-1", "gpu-1", "gpu-2")] == [False, True, True]
    listed = trio.finish(inventory)
    assert listed.code == 0
    assert f'"ssh_port": {PORT}' in listed.out
    assert '"small"' in listed.out
