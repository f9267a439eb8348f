"""Two operators at once: the second waits and thinks again, or is told who is at work."""

from __future__ import annotations

import time

from tests.contract.trio import Trio

BODY = """
class Content(Probe[str]):
    def command(self): return f"cat {BASE}/file 2>/dev/null || true"
    def parse(self, text): return text

@operation()
@guarded
def put(*, text):
    if text in read(Content):
        yield from carry_out(settled("it is there"))
        return
    wait = f"echo began >{BASE}/began; until [ -e {BASE}/go ]; do sleep 0.1; done"
    work = Run(script=f"{wait}; echo {text} >>{BASE}/file", why="work")
    yield from carry_out(Decision(reason=f"{text} is not there", steps=(work,)))

put(name="put", text="once")
"""


def begun(trio: Trio) -> None:
    for _ in range(1200):
        if trio.on("gpu-1", "began").exists():
            return
        time.sleep(0.05)
    raise AssertionError("the first run never began")


def test_the_second_run_waits_and_decides_from_what_the_first_did(trio: Trio) -> None:
    arguments = ("inventories/bench", trio.deploy(BODY), "--yes", "--limit", "gpu-1")
    first = trio.popen(*arguments)
    begun(trio)
    second = trio.popen(*arguments)
    assert second.stderr is not None
    assert any("held by run" in line for line in second.stderr)
    trio.on("gpu-1", "go").touch()
    one, two = trio.finish(first), trio.finish(second)
    assert (one.code, two.code) == (0, 0)
    assert trio.on("gpu-1", "file").read_text() == "once\n"


def test_a_second_run_that_waited_in_vain_names_the_holder_and_changes_nothing(trio: Trio) -> None:
    first = trio.popen("inventories/bench", trio.deploy(BODY), "--yes", "--limit", "gpu-1")
    begun(trio)
    impatient = BODY.replace('text="once"', 'text="twice"')
    second = trio.run(
        f"import gpurack.engine.lock\ngpurack.engine.lock.LOCK_LIMIT = 1\n{impatient}",
        "--yes",
        "--limit",
        "gpu-1",
    )
    trio.on("gpu-1", "go").touch()
    assert trio.finish(first).code == 0
    assert second.code == 1
    problem = second.report["hosts"]["gpu-1"]["problems"][0]
    assert problem["code"] == "E-LOCK-01"
    assert problem["found"].startswith("run ")
    assert f"(pid {first.pid})" in problem["found"]
    assert trio.on("gpu-1", "file").read_text() == "once\n"
