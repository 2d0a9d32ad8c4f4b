"""Fixtures of rendered charts; see rendered.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.chart.rendered import BINARIES, CACHE, HELMS, VALUES, Helm


@pytest.fixture(scope="session")
def helm_majors() -> set[str]:
    """As in {"helm-v3", "helm-v4"}."""
    return {path.name.partition(".")[0] for path in BINARIES}


@pytest.fixture(params=HELMS or [None], ids=lambda helm: helm.binary.name if helm else "no-helm")
def helm(request: pytest.FixtureRequest, missing_part: Callable[[str], NoReturn]) -> Helm:
    if request.param is None:
        missing_part("Helm is not to be had; script/fetch-helm fetches it.")
    return request.param


@pytest.fixture
def newest(missing_part: Callable[[str], NoReturn]) -> Helm:
    """Where one Helm is enough: both render the same."""
    if not HELMS:
        missing_part("Helm is not to be had; script/fetch-helm fetches it.")
    return HELMS[-1]


@pytest.fixture(scope="session")
def schemas() -> Path:
    """The folder with a JSON schema for each custom resource."""
    return CACHE / "schemas"


@pytest.fixture(params=VALUES)
def values(request: pytest.FixtureRequest) -> Path:
    return VALUES[request.param]


@pytest.fixture
def manifests(newest: Helm, values: Path) -> list[dict[str, Any]]:
    return newest.template("-f", str(values))


@pytest.fixture
def everything(newest: Helm) -> list[dict[str, Any]]:
    """What all files of values render, each manifest once."""
    found: list[dict[str, Any]] = []
    for path in VALUES.values():
        found += [manifest for manifest in newest.template("-f", str(path)) if manifest not in found]
    return found
