"""Real Helm: the versions that script/fetch-helm put into the cache, else the one on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/zubble-queue"
VALUES = {
    "default": CHART / "values.yaml",
    **{path.stem: path for path in sorted(CHART.glob("ci/*-values.yaml"))},
    **{f"helm/{path.stem}": path for path in sorted((ROOT / "helm").glob("*.yaml"))},
}


def _binaries() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fetched = sorted((cache / "zubble-queue/helm").glob("helm-v*"))
    on_path = shutil.which("helm")
    return fetched or ([Path(on_path)] if on_path else [])


BINARIES = _binaries()  # before any test changes HOME


class Helm:
    """One helm binary and this repository's chart."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary
        self.chart = CHART

    def run(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.binary, verb, *arguments], capture_output=True, text=True, check=False, timeout=60
        )

    def template(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.run("template", "trial", str(CHART), "--namespace", "agents", *arguments)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="session")
def helm_majors() -> set[str]:
    """As in {"helm-v3", "helm-v4"}."""
    return {path.name.partition(".")[0] for path in BINARIES}


@pytest.fixture(params=BINARIES or [None], ids=lambda path: path.name if path else "no-helm")
def helm(request: pytest.FixtureRequest, missing_part: Callable[[str], NoReturn]) -> Helm:
    if request.param is None:
        missing_part("Helm is not to be had; script/fetch-helm fetches it.")
    return Helm(request.param)


@pytest.fixture(params=VALUES)
def values(request: pytest.FixtureRequest) -> Path:
    return VALUES[request.param]


@pytest.fixture
def manifests(helm: Helm, values: Path) -> list[dict[str, Any]]:
    return helm.template("-f", str(values))


@pytest.fixture
def worker(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod specification of the worker's Deployment."""
    [deployment] = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]
