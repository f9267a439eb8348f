"""Host keys, jump host, dead hosts: each its own word; nothing of `~/.ssh` is consulted."""

from __future__ import annotations

from typing import Any

import typer
from typer.testing import CliRunner

from gpurack.engine.trust import hosts
from tests.contract.trio import HOSTS, PORT, Trio

LOOK = """
@operation()
@guarded
def look():
    yield from carry_out(settled("fine"))

look(name="look")
"""


def hosts_trust(trio: Trio, document: str, *arguments: str) -> Any:
    application = typer.Typer()
    application.add_typer(hosts, name="hosts")
    return CliRunner().invoke(application, ["hosts", "trust", str(trio.folder / document), *arguments])


def test_unknown_and_changed_host_keys_are_told_apart_and_trust_cures_both(trio: Trio) -> None:
    known = trio.state / "known_hosts"
    lines = known.read_text().splitlines()
    wrong = lines[2].split()[-1]
    known.write_text(f"{lines[0]}\n{' '.join(lines[1].split()[:-1])} {wrong}\n")
    try:
        result = trio.run(LOOK)
        assert result.code == 1
        codes = {
            name: [one["code"] for one in host["problems"]] for name, host in result.report["hosts"].items()
        }
        assert codes == {"cp-1": [], "gpu-1": ["E-SSH-02"], "gpu-2": ["E-SSH-01"]}
        assert "--replace gpu-1" in result.report["hosts"]["gpu-1"]["problems"][0]["next"]
        shown = hosts_trust(trio, "inventories/bench")
        assert shown.exit_code == 1
        assert "CHANGED" in shown.stdout
        assert "SHA256:" in shown.stdout
        assert known.read_text().count("\n") == 2
        first = hosts_trust(trio, "inventories/bench", "--first-use")
        assert first.exit_code == 1  # a changed key is never a first use
        assert known.read_text().count("\n") == 3
        assert hosts_trust(trio, "inventories/bench", "--replace", "gpu-1").exit_code == 0
        assert sorted(known.read_text().splitlines()) == sorted(lines)
        assert known.stat().st_mode & 0o077 == 0
    finally:
        trio.trust()


def test_a_list_is_believed_and_nothing_beside_it(trio: Trio) -> None:
    known = trio.state / "known_hosts"
    lines = known.read_text().splitlines()
    known.unlink()
    try:
        listed = trio.folder / "list"
        listed.write_text("\n".join(lines[:2]))
        result = hosts_trust(trio, "inventories/bench", "--list", str(listed))
        assert result.exit_code == 1
        assert "gpu-2" in result.stdout
        assert "NOT in the list" in result.stdout
        assert sorted(known.read_text().splitlines()) == sorted(lines[:2])
        listed.write_text("gpu-2\n")
        assert hosts_trust(trio, "inventories/bench", "--list", str(listed)).exit_code == 2
    finally:
        trio.trust()


def test_everything_works_through_a_jump_host_whose_key_is_checked_too(trio: Trio) -> None:
    text = trio.document.read_text().replace("name: bench", "name: far", 1)
    text = text.replace("key: ../key}", f"key: ../key, jump: {{host: {HOSTS['cp-1']}, port: {PORT}}}}}", 1)
    (trio.folder / "inventories" / "far.yaml").write_text(text)
    (trio.folder / "inventories" / "far").write_text('far = [f"@gpurack/{__file__}.yaml"]\n')
    refused = trio.pyinfra("inventories/far", trio.deploy(LOOK), "--yes")
    assert refused.code == 1
    assert "of the jump host" in refused.err
    assert hosts_trust(trio, "inventories/far").exit_code == 1
    assert hosts_trust(trio, "inventories/far", "--first-use").exit_code == 0
    result = trio.pyinfra(
        "inventories/far",
        trio.deploy(LOOK + 'print(host.connector.ask("echo from $SSH_CONNECTION", limit=9).out)'),
        "--yes",
    )
    assert result.code == 0
    assert "from 127." in result.out
