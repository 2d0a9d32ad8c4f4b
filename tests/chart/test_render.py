"""The chart lints and renders with every value file, and what it renders is valid Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import zubble_queue

CHART = Path(__file__).resolve().parents[2] / "charts/zubble-queue"


def test_the_chart_lints(helm, values):
    done = helm.run("lint", "--strict", str(CHART), "-f", str(values))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_is_tested_with_both_major_versions_of_helm(helm_majors, missing_part):
    if not {"helm-v3", "helm-v4"} <= helm_majors:
        missing_part(f"Helm 3 and Helm 4 are not both to be had, only: {sorted(helm_majors)}.")


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_every_manifest_is_valid_for_the_oldest_and_the_newest_kubernetes(
    manifests: list[dict[str, Any]], version: str
):
    assert manifests
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)  # an unknown kind raises as well


def test_the_chart_names_the_packages_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == zubble_queue.__version__
    assert chart["version"] == zubble_queue.__version__


def test_the_readme_describes_every_value():
    described = set(re.findall(r"`([A-Za-z.]+)`", (CHART / "README.md").read_text()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert _leaves(values) - described == set()


def _leaves(values: dict[str, Any], prefix: str = "") -> set[str]:
    """Dotted names; what the user fills with objects of Kubernetes counts as one value."""
    whole = {"worker.resources", "worker.seccompProfile"}
    names: set[str] = set()
    for key, value in values.items():
        name = f"{prefix}{key}"
        nested = isinstance(value, dict) and value and name not in whole
        names |= _leaves(value, f"{name}.") if nested else {name}
    return names
