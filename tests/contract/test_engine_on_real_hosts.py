"""The engine against real sshd through the stock `pyinfra` command: what a person sees and what hosts get."""

from __future__ import annotations

from tests.contract.trio import Trio

WRITE = """
@operation()
@guarded
def put(*, text, mode=0o644):
    path = f"{BASE}/file"
    yield from carry_out(Decision(reason="because", steps=(Write(path=path, content=text, mode=mode),)))
"""


def test_what_goes_wrong_on_one_host_stays_there(trio: Trio) -> None:
    """A refusal, a failed fact, an owed change and a broken operation in one run; none touches the others."""
    result = trio.run(
        WRITE
        + """
class Broken(Probe[str]):
    script = f"grep -qs gpu-1 {BASE}/file || exit 0; echo no such tool >&2; exit 5"
    def parse(self, text): return text

@operation()
@guarded
def needs_fact():
    read(Broken)
    yield from carry_out(Decision(reason="because", steps=(Write(path=f"{BASE}/after-fact", content="x"),)))

@operation()
@guarded
def refused():
    problem = Problem(code="E-TEST-01", what="the wrong kind of host", rule="R0", next="take another")
    yield from carry_out(refuse(problem) if executing() and NODE == "gpu-2" else settled("fine"))

put(name="write a file", text=NODE)
needs_fact(name="needs a fact")
refused(name="refuses")
put(name="write another", text="bye")
"""
    )
    assert result.code == 1
    assert trio.on("cp-1", "file").read_text() == "bye"
    assert trio.on("gpu-1", "file").read_text() == "gpu-1"
    assert not trio.on("gpu-1", "after-fact").exists()
    assert trio.on("gpu-2", "file").read_text() == "gpu-2"
    assert trio.on("gpu-2", "after-fact").exists()
    hosts = result.report["hosts"]
    assert [hosts[name]["outcome"] for name in ("cp-1", "gpu-1", "gpu-2")] == ["changed", "failed", "failed"]
    assert hosts["gpu-1"]["problems"][0]["found"] == "exit 5: no such tool"
    assert hosts["gpu-2"]["problems"][0]["code"] == "E-TEST-01"
    assert result.report["accepted"] == ["os-debian-12"]
    assert "Traceback" not in result.err + result.out
    assert result.err.index("FAILED") > result.err.index("Grand total")
