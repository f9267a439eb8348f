"""The simulated device plugin against kubelet's own protocol definitions, by `go test`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpurack.lab import components
from gpurack.lab.recipes import RECIPES, GoRecipe

pytestmark = pytest.mark.lab


def test_the_plugin_registers_lists_allocates_and_survives_kubelet_restarts(tmp_path: Path) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "gpusim")
    assert isinstance(recipe, GoRecipe)
    assert recipe.source is not None
    for source in (components.HERE / recipe.source, Path(__file__).parent / "gpusim"):
        for path in source.glob("*.go"):
            shutil.copy(path, tmp_path)
    go = components.go_command(components.CACHE, print)
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [go, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    run("mod", "init", "gpurack.lab/gpusim")
    run("mod", "edit", *(f"-require={module}@{version}" for module, version in recipe.require.items()))
    vetted = run("vet", "-trimpath", ".")
    assert vetted.returncode == 0, vetted.stderr
    done = run("test", "-trimpath", "-count=1", "-timeout=120s", ".")
    assert done.returncode == 0, done.stdout + done.stderr
