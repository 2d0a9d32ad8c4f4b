"""The lock file has a fitting version of everything the project asks for, and names no package index."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
LINES = [line for line in (ROOT / "requirements-ci.txt").read_text().splitlines() if not line.startswith("#")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _asked_for() -> list[str]:
    project = PROJECT["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    groups = [text for texts in PROJECT["dependency-groups"].values() for text in texts]
    asked = [*project["dependencies"], *extras, *groups, *PROJECT["build-system"]["requires"]]
    return sorted({text for text in asked if not text.startswith("zubble-queue[")})


@pytest.mark.parametrize("text", _asked_for())
def test_what_the_project_asks_for_is_locked_at_a_fitting_version(text: str):
    asked = Requirement(text)
    locked = [Requirement(line) for line in LINES]
    versions = [
        next(iter(requirement.specifier)).version
        for requirement in locked
        if canonicalize_name(requirement.name) == canonicalize_name(asked.name)
    ]
    assert versions, f"{asked.name} is not in the lock file: run script/lock"
    assert all(asked.specifier.contains(version) for version in versions), f"{text}: run script/lock"


def test_every_line_of_the_lock_is_one_exact_version():
    for line in LINES:
        [specifier] = Requirement(line).specifier
        assert specifier.operator == "=="


def test_the_lock_names_no_index_and_no_file():
    assert not [line for line in LINES if line.startswith("-") or "://" in line or "@" in line]
