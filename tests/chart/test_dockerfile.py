"""The image recipe, read as text: building it needs an engine and a base image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Instruction = tuple[str, str]


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    """(INSTRUCTION, the rest), with continued lines joined and comments left out."""
    text = (ROOT / "Dockerfile").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", lines)
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest) for word, rest in pairs]


@pytest.fixture(scope="module")
def final(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions of the last stage."""
    last = max(index for index, (word, _) in enumerate(instructions) if word == "FROM")
    return instructions[last:]


def only(instructions: list[Instruction], word: str) -> str:
    [rest] = [rest for found, rest in instructions if found == word]
    return rest


def test_the_base_is_an_argument_with_a_pinned_default(instructions: list[Instruction]):
    word, rest = instructions[0]
    assert word == "ARG"
    name, _, default = rest.partition("=")
    assert re.fullmatch(r"python:3\.1[1-4]-slim-[a-z]+", default)
    assert [rest.split()[0] for word, rest in instructions if word == "FROM"] == [f"${{{name}}}"] * 2


def test_the_last_stage_takes_nothing_from_the_checkout(final: list[Instruction]):
    assert [rest for word, rest in final if word in {"COPY", "ADD"}] == [
        "--from=build /opt/zubble /opt/zubble"
    ]


def test_the_image_runs_as_a_user_by_number_who_is_not_root(final: list[Instruction]):
    user, _, group = only(final, "USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_user_is_the_one_that_the_chart_runs_as(final: list[Instruction]):
    chart = "".join(path.read_text() for path in (ROOT / "charts/zubble-queue/templates").glob("*"))
    assert f"runAsUser: {only(final, 'USER').partition(':')[0]}" in chart


def test_the_entry_point_is_the_command_and_gets_the_signals(final: list[Instruction]):
    assert json.loads(only(final, "ENTRYPOINT")) == ["zubble"]
    assert only(final, "STOPSIGNAL") == "SIGTERM"


def test_the_health_check_passes_where_nothing_is_wrong(final: list[Instruction]):
    command = json.loads(only(final, "HEALTHCHECK").partition("CMD ")[2])
    assert command[0] == "zubble"
    program = Path(sys.executable).with_name("zubble")
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_extras_are_ones_that_the_package_has(instructions: list[Instruction]):
    defaults = dict(rest.split("=", 1) for word, rest in instructions if word == "ARG")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert defaults["EXTRAS"] in project["optional-dependencies"]


def test_what_is_copied_is_there_and_not_ignored(instructions: list[Instruction]):
    allowed = {line[1:].rstrip("/") for line in _lines(".dockerignore") if line.startswith("!")}
    for rest in (rest for word, rest in instructions if word == "COPY" and not rest.startswith("--from")):
        for source in rest.split()[:-1]:
            assert source.rstrip("*") in allowed
            assert source == "wheelhouse*" or (ROOT / source).exists()


def test_everything_is_ignored_that_is_not_named():
    assert _lines(".dockerignore")[0] == "*"


def test_no_secret_is_built_in(instructions: list[Instruction]):
    named = " ".join(rest for word, rest in instructions if word in {"ARG", "ENV"})
    assert not re.search(r"(?i)key|token|secret|password", named)


def _lines(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
