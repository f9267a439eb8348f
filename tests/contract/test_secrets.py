"""No secret in any log level, diff, JSON, report, process list or file that others may read."""

from __future__ import annotations

import base64

from tests.contract.trio import HOSTS, Trio

SECRET = 'it\'s $ecret-"7f3a"-pässword'
TOKEN = "abcdef.0123456789abcdef"

BODY = """
from pyinfra.facts.server import Command

token = once("token", lambda: conceal(TOKEN))

@operation()
@guarded
def hand_over(*, password):
    look = f"ps axww -o args >{BASE}/ps; cat >{BASE}/stdin; chmod 600 {BASE}/stdin; cat {BASE}/stdin"
    yield from carry_out(Decision(
        reason=f"the password {password} is new",
        notes=(f"token {token} was minted",),
        steps=(
            Write(path=f"{BASE}/secret", content=password + NEWLINE, mode=0o600, secret=True, validate=SHOW),
            Write(path=f"{BASE}/open", content="plain" + NEWLINE),
            Run(script=look, why="hand over a secret", stdin=password + NEWLINE + token),
        ),
    ))

@operation()
@guarded
def fails(*, password):
    if executing():
        yield from carry_out(refuse(Problem(code="E-TEST-04", what=f"token {token} refused", found=password)))

password = resolve("env:BENCH_SECRET")
hand_over(name="hand over", password=password)
fails(name="fails", password=password)
host.get_fact(Command, command=f"echo {token}")
"""


def leaks(text: str) -> list[str]:
    forms = [SECRET, TOKEN, base64.b64encode(SECRET.encode()).decode(), "7f3a", "0123456789abcdef"]
    return [form for form in forms if form in text]


def test_nothing_leaks_at_the_loudest(trio: Trio) -> None:
    body = f"TOKEN = {TOKEN!r}\nNEWLINE = chr(10)\nSHOW = 'cat \"$1\"'\n{BODY}"
    arguments = ("--yes", "-vvv", "--diff", "--json", "--debug", "--debug-all")
    result = trio.run(body, *arguments, env={"BENCH_SECRET": SECRET})
    assert result.code == 1
    assert not leaks(result.out), leaks(result.out)
    assert not leaks(result.err), [line for line in result.err.splitlines() if leaks(line)]
    assert "********" in result.err
    assert "it holds a secret" in result.err
    assert "+plain" in result.err
    assert not leaks(str(result.report))
    for file in (trio.state / "reports").iterdir():
        assert not leaks(file.read_text())
        assert file.stat().st_mode & 0o077 == 0
    for name in HOSTS:
        assert trio.on(name, "secret").read_text() == SECRET + "\n"
        assert trio.on(name, "secret").stat().st_mode & 0o777 == 0o600
        assert trio.on(name, "stdin").read_text() == f"{SECRET}\n{TOKEN}"
        assert not leaks(trio.on(name, "ps").read_text())


def test_pyinfras_debug_log_is_masked(trio: Trio) -> None:
    body = """
        password = resolve("env:BENCH_SECRET")

        def broken(stage):
            raise RuntimeError(f"no stage {stage} with {password}")

        host.state.set_stage = broken
    """
    result = trio.run(body, env={"BENCH_SECRET": "sup3r-s3cret"})
    assert result.code == 1
    assert "sup3r" not in result.err
    log = (trio.folder / "pyinfra-debug.log").read_text()
    assert "no stage" in log
    assert result.report["exit_code"] == 1
    assert "no stage" in result.report["error"]
    assert "sup3r" not in str(result.report)
    assert "sup3r" not in log
    (trio.folder / "pyinfra-debug.log").unlink()
