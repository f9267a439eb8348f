"""Steps on a real host: what is written, how, and what is left when it does not work."""

from __future__ import annotations

import os
import stat

from tests.contract.trio import Trio

STEPS = """
import json, pathlib

@operation()
@guarded
def do(*, steps):
    yield from carry_out(Decision(reason="because", steps=steps))

"""


CANNOT = """
GREP = 'grep -q old "$1" || { echo not like the old >&2; false; }'
if NODE == "cp-1":
    do(name="bad", steps=(
        Write(path=f"{BASE}/file", content="new", validate=GREP),
        Write(path=f"{BASE}/next", content="x"),
    ))
if NODE == "gpu-1":
    do(name="big", steps=(Write(path=f"{BASE}/file", content="x" * 3_000_000),))
if NODE == "gpu-2":
    do(name="folder", steps=(Write(path=f"{BASE}/folder", content="x"),))
"""


def problems(trio: Trio, body: str, *arguments: str) -> list[tuple[str, str]]:
    """Run `body` on one host; the problems that it ended with."""
    result = trio.run(STEPS + body, "--yes", "--limit", "gpu-1", *arguments)
    assert "Traceback" not in result.err
    return [(one["code"], one["found"]) for one in result.report["hosts"]["gpu-1"]["problems"]]


def test_a_file_is_written_whole_with_owner_and_mode_and_its_folders_are_made(trio: Trio) -> None:
    trio.on("gpu-1", "kept").write_text("old")
    trio.on("gpu-1", "kept").chmod(0o604)
    os.chown(trio.on("gpu-1", "kept"), 12, 34)
    trio.on("gpu-1", ".gpurack.abcdef").write_text("of a run that lost its power")
    content = "naïve $HOME `x` \\\\ 'q' \"d\"\\n\\n no end"
    found = problems(
        trio,
        f"""
content = {content!r}
do(name="write", steps=(
    Write(path=f"{{BASE}}/a", content=content, mode=0o640, owner="daemon:adm"),
    Write(path=f"{{BASE}}/with space/deep/b", content="x" * 300_000, mode=0o600),
    Write(path=f"{{BASE}}/kept", content="new", keep_mode=True, mode=0o600),
    Write(path=f"{{BASE}}/empty", content=""),
    Remove(path=f"{{BASE}}/never-there"),
))
""",
    )
    assert found == []
    file = trio.on("gpu-1", "a")
    assert file.read_text() == content
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert (file.owner(), file.group()) == ("daemon", "adm")
    deep = trio.on("gpu-1", "with space/deep")
    assert stat.S_IMODE(deep.stat().st_mode) == 0o755
    assert (deep / "b").stat().st_size == 300_000
    kept = trio.on("gpu-1", "kept")
    assert kept.read_text() == "new"
    assert (stat.S_IMODE(kept.stat().st_mode), kept.stat().st_uid, kept.stat().st_gid) == (0o604, 12, 34)
    assert trio.on("gpu-1", "empty").read_text() == ""
    assert not list(trio.on("gpu-1", ".").glob(".gpurack.*"))
    trio.wipe("gpu-1", "with space")


def test_what_can_not_be_written_leaves_what_was_there(trio: Trio) -> None:
    """Not valid on cp-1, a full disk on gpu-1, a folder in the way on gpu-2."""
    for name in ("cp-1", "gpu-1"):
        trio.on(name, "file").write_text("old")
    trio.on("gpu-2", "folder").mkdir()
    with trio.full("gpu-1"):
        result = trio.run(STEPS + CANNOT)
    assert result.code == 1
    found = {name: host["problems"][0] for name, host in result.report["hosts"].items()}
    assert [found[name]["code"] for name in found] == ["E-STEP-07"] * 3
    assert found["cp-1"]["found"] == "exit 1: not like the old"
    assert f"not done: write {trio.base}/next" in found["cp-1"]["left"]
    assert "No space left" in found["gpu-1"]["found"]
    assert "is a folder" in found["gpu-2"]["found"]
    for name in ("cp-1", "gpu-1"):
        assert trio.on(name, "file").read_text() == "old"
        assert not trio.on(name, "next").exists()
    assert not [file for name in found for file in trio.on(name, ".").glob(".gpurack.*")]
    trio.on("gpu-2", "folder").rmdir()


def test_limits_and_waits_say_what_they_waited_for(trio: Trio) -> None:
    result = trio.run(
        STEPS
        + """
import gpurack.engine.steps
gpurack.engine.steps.PROGRESS_EVERY = 1
if NODE == "cp-1":
    do(name="too long", steps=(Run(script="echo half; sleep 60", why="sleep", deadline=1),))
if NODE == "gpu-1":
    do(name="in vain", steps=(
        Await(probe="echo not yet >&2; false", reason="the moon", deadline=3, journal="moon.service"),
        Write(path=f"{BASE}/never", content="x"),
    ))
if NODE == "gpu-2":
    do(name="in time", steps=(
        Run(script=f"(sleep 1; touch {BASE}/flag) >/dev/null 2>&1 &", why="start it"),
        Await(probe=f"test -e {BASE}/flag", reason="the flag", deadline=20, every=0.2),
    ))
"""
    )
    hosts = result.report["hosts"]
    slow = hosts["cp-1"]["problems"][0]
    assert slow["code"] == "E-STEP-02"
    assert "no end after 1 s" in slow["found"]
    assert "half" in slow["found"]
    vain = hosts["gpu-1"]["problems"][0]
    assert (vain["code"], vain["what"]) == ("E-STEP-04", "waited 3 s in vain: the moon")
    assert vain["found"] == "not yet"
    assert "not done: write" in vain["left"][1]
    assert "of 3 s: waiting for the moon" in result.err
    assert hosts["gpu-2"]["outcome"] == "changed"
    assert not trio.on("gpu-1", "never").exists()
