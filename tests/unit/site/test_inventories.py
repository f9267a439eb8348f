"""The documents and shims that this repository ships."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gpurack.decide.gates import GATES
from gpurack.lab.deviations import DEVIATIONS
from gpurack.site import load

INVENTORIES = Path(__file__).parents[3] / "inventories"
SHIMS = ["prod", "lab", "lab_vm", "vagrant"]


@pytest.mark.parametrize("name", SHIMS)
def test_a_shim_names_the_document_beside_it_from_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shim = INVENTORIES / name
    assert runpy.run_path(str(shim))[name] == [f"@gpurack/{shim}.yaml"]
    assert len(shim.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize("name", SHIMS)
def test_every_shipped_document_is_good(name: str) -> None:
    assert load(INVENTORIES / name, files=False).hosts


def test_the_example_rack_validates_with_all_its_files() -> None:
    site = load(INVENTORIES / "prod")
    assert all(pool.hardware.gpus.count == 8 for pool in site.pools.values())
    assert not site.accept


def test_the_two_labs_differ_in_the_guest_only() -> None:
    lab, with_guest = (load(INVENTORIES / name, files=False) for name in ("lab", "lab_vm"))
    assert lab.name == with_guest.name
    assert lab.cluster == with_guest.cluster
    assert lab.accept == with_guest.accept
    assert [host.name for host in with_guest.hosts] == [*(host.name for host in lab.hosts), "gpu-3"]


def test_the_lab_accepts_exactly_the_deviations_that_it_has() -> None:
    ids = {deviation.id for deviation in DEVIATIONS}
    assert load(INVENTORIES / "lab", files=False).accept == ids
    assert ids <= set(GATES)
