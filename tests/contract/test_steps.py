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


def test_a_file_that_does_not_validate_leaves_the_old_one(trio: Trio) -> None:
    trio.on("gpu-1", "file").write_text("old")
    found = problems(
        trio,
        """
do(name="bad", steps=(
    Write(path=f"{BASE}/file", content="new", validate='grep -q old "$1" || { echo not like the old >&2; false; }'),
    Write(path=f"{BASE}/next", content="x"),
))
""",
    )
    assert found == [("E-STEP-07", "exit 1: not like the old")]
    assert trio.on("gpu-1", "file").read_text() == "old"
    assert not trio.on("gpu-1", "next").exists()
    assert not list(trio.on("gpu-1", ".").glob(".gpurack.*"))


def test_a_full_disk_leaves_the_old_file(trio: Trio) -> None:
    trio.on("gpu-1", "file").write_text("old")
    with trio.full("gpu-1"):
        found = problems(trio, 'do(name="big", steps=(Write(path=f"{BASE}/file", content="x" * 3_000_000),))')
    assert found[0][0] == "E-STEP-07"
    assert "No space left" in found[0][1]
    assert trio.on("gpu-1", "file").read_text() == "old"
    assert not list(trio.on("gpu-1", ".").glob(".gpurack.*"))


def test_a_folder_is_never_replaced_or_removed(trio: Trio) -> None:
    trio.on("gpu-1", "folder").mkdir()
    found = problems(trio, 'do(name="w", steps=(Write(path=f"{BASE}/folder", content="x"),))')
    assert found[0][0] == "E-STEP-07"
    found = problems(trio, 'do(name="r", steps=(Remove(path=f"{BASE}/folder"),))')
    assert found[0][0] == "E-STEP-01"
    assert trio.on("gpu-1", "folder").is_dir()
    trio.on("gpu-1", "folder").rmdir()


def test_limits_and_waits_say_what_they_waited_for(trio: Trio) -> None:
    result = trio.run(
        STEPS
        + """
if NODE == "cp-1":
    do(name="too long", steps=(Run(script="echo half; sleep 60", why="sleep", deadline=1),))
if NODE == "gpu-1":
    do(name="in vain", steps=(
        Await(probe="echo not yet >&2; false", reason="the moon", deadline=6, every=0.5, journal="moon.service"),
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
    assert (vain["code"], vain["what"]) == ("E-STEP-04", "waited 6 s in vain: the moon")
    assert vain["found"] == "not yet"
    assert "not done: write" in vain["left"][1]
    assert "of 6 s: waiting for the moon" in result.err
    assert hosts["gpu-2"]["outcome"] == "changed"
    assert not trio.on("gpu-1", "never").exists()
