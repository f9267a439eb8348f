"""How refusals are tried: the lab's site document with one thing changed, and what must not have moved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.lab import harness
from tests.lab.harness import Ran
from tests.lab.killing import Controller

HOST = "gpu-2"
Document = dict[str, Any]
Change = Callable[[Document], None]


@dataclass(frozen=True)
class Case:
    """A copy of the lab's document with its own shim and state: the same cluster, the same trusted hosts."""

    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "inventories" / "case"

    @property
    def document(self) -> Path:
        return self.inventory.with_suffix(".yaml")

    @property
    def state(self) -> Path:
        return self.folder / ".gpurack" / "lab"

    def run(self, *flags: str, limit: str = HOST, deploy: str = "gpu_node", timeout: float = 300) -> Ran:
        limits = [part for name in limit.split(",") for part in ("--limit", name)]
        return harness.pyinfra(self.inventory, f"deploys/{deploy}.py", *limits, *flags, timeout=timeout)

    def report(self) -> dict[str, Any]:
        """The report of the latest run."""
        latest = max((self.state / "reports").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        return dict(json.loads(latest.read_text()))

    def outcomes(self) -> dict[str, str]:
        return {name: host["outcome"] for name, host in self.report()["hosts"].items()}


def as_is(document: Document) -> None:
    """The lab's document, unchanged."""


def case(folder: Path, change: Change = as_is, *, of: str = "lab") -> Case:
    """The lab's site document in `folder`, changed by `change`. + of: its name, `lab_vm` has the guest too"""
    made = Case(folder)
    made.inventory.parent.mkdir(parents=True)
    source = harness.REPOSITORY / "inventories" / f"{of}.yaml"
    document = yaml.safe_load(source.read_text())
    document["stack"] = str(source.parent / document["stack"])
    change(document)
    made.document.write_text(yaml.safe_dump(document, sort_keys=False))
    shutil.copy(source.with_suffix(""), made.inventory)
    made.state.mkdir(parents=True, mode=0o700)
    for name in ("kubeconfig", "known_hosts", "cluster.json"):
        shutil.copy(harness.REPOSITORY / ".gpurack" / "lab" / name, made.state / name)
    return made


def apart(change: Change) -> Change:
    """`change`, made to a pool that only the host under test is in: the others are as they were."""

    def both(document: Document) -> None:
        pool = document["pools"]["apart"] = json.loads(json.dumps(document["pools"]["lab-container"]))
        next(host for host in document["hosts"] if host["name"] == HOST)["pool"] = "apart"
        change(pool)

    return both


def finish(controller: Controller, timeout: float = 300) -> Ran:
    """How a run ended that was started in the background."""
    code = controller.ends(within=timeout)
    return Ran(code, "".join(controller.lines), "")


def last_screen(ran: Ran) -> str:
    """What a person reads: from FAILED on. Empty when nothing failed."""
    return ran.text.partition("\nFAILED\n")[2]


def assert_refused(ran: Ran, code: str, *words: str) -> None:
    """Exit 1, the code, the words and a next step on the last screen, no traceback anywhere."""
    assert ran.rc == 1, f"exit {ran.rc}\n{ran.text[-4000:]}"
    assert "Traceback" not in ran.text
    screen = last_screen(ran)
    missing = [word for word in (code, *words, "next ") if word not in screen]
    assert missing == [], f"{missing} not on the last screen:\n{screen or ran.text[-4000:]}"


def assert_fails_alone(tried: Case, host: str = HOST) -> None:
    """The host failed; cp-1 came through. Its routes may change: nodes come and go between tests."""
    found = tried.outcomes()
    assert found.pop(host) == "failed"
    assert found in ({"cp-1": "as wanted"}, {"cp-1": "changed"})


# What harness.footprint does not look at: packages, binaries, units, half-written files.
_MORE = r"""
echo "packages $(dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n' | md5sum)"
echo "selections $(dpkg --get-selections | md5sum)"
echo "local $(find /usr/local /opt -xdev -type f -printf '%p %i %T@\n' | sort | md5sum)"
echo "leftovers $(find /etc /usr/local /opt /root /tmp /var/lib/kubelet /var/lib/gpurack -xdev \
  -name '.gpurack.*' 2>/dev/null | tr '\n' ' ')"
"""


def state_of(host: str, *, site: Path) -> dict[str, str]:
    """Everything that a refused run may not touch."""
    more = harness.ssh(host, _MORE, site=site).ok().out.splitlines()
    return harness.footprint(host, site=site) | dict(line.split(" ", 1) for line in more)


def assert_nothing_half_written(host: str, *, site: Path) -> None:
    assert state_of(host, site=site)["leftovers"].strip() == ""


def make_bare(host: str, *, site: Path) -> None:
    """As after its first boot, and no Node of that name in the cluster."""
    harness.until(lambda: _reset(host), f"{host} is reset", deadline=300)
    harness.kubectl("delete", "node", host, "--ignore-not-found", site=site).ok()


def _reset(host: str) -> bool:
    """Whether the host was reset; not while somebody else changes the rack."""
    done = harness.gpurack("lab", "reset", host, timeout=300)
    if "E-LAB-01" in done.text:
        return False
    return done.ok().rc == 0
