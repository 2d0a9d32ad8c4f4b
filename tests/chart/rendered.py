"""The chart, its files of values, and real Helm: the versions that script/fetch-helm put into the cache, else
the one on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/zubble-queue"
VALUES = {
    "default": CHART / "values.yaml",
    **{path.stem: path for path in sorted(CHART.glob("ci/*-values.yaml"))},
    **{f"helm/{path.stem}": path for path in sorted((ROOT / "helm").glob("*.yaml"))},
}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zubble-queue/helm"


def _binaries() -> list[Path]:
    on_path = shutil.which("helm")
    return sorted(CACHE.glob("helm-v*")) or ([Path(on_path)] if on_path else [])


BINARIES = _binaries()  # before any test changes HOME


class Helm:
    """One helm binary and this repository's chart."""

    chart = CHART
    _rendered: dict[tuple[Path, tuple[str, ...]], str]

    def __init__(self, binary: Path) -> None:
        self.binary = binary
        self._rendered = {}

    def run(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.binary, verb, *arguments], capture_output=True, text=True, check=False, timeout=60
        )

    def template(self, *arguments: str) -> list[dict[str, Any]]:
        """All manifests of a release `trial` in the namespace `agents`."""
        key = (self.binary, arguments)
        if key not in self._rendered:
            done = self.run("template", "trial", str(CHART), "--namespace", "agents", *arguments)
            assert done.returncode == 0, done.stderr
            self._rendered[key] = done.stdout
        loaded = yaml.load_all(self._rendered[key], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return [document for document in loaded if document]


HELMS = [Helm(binary) for binary in BINARIES]
