"""What the documents say can be done: their commands exist, their links lead somewhere."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zubble_queue.cli.main import ALIASES
from zubble_queue.contracts.submission import TaskDefaults
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.formats.envelopes import read
from zubble_queue.formats.task_line import TaskLine, VerifyLine
from zubble_queue.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("charts/**/*.md"),
        *ROOT.glob("helm/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
)
GROUPS = {"batch", "budget", "config", "memory", "sandbox", "task"}
IN_CODE = re.compile(r"(?:^|--|&&|\$)\s*zubble (.+)$")
IN_SENTENCE = re.compile(r"`(?:[^`]* -- )?zubble ([^`]+)`")


def _commands() -> list[tuple[str, str]]:
    """(document, what follows `zubble`), from code blocks and from code in sentences."""
    found = []
    for document in DOCUMENTS:
        fenced = False
        for line in document.read_text().replace("\\\n", " ").splitlines():
            fenced ^= line.startswith("```")
            pattern = IN_CODE if fenced or line.startswith("    ") else IN_SENTENCE
            shown = [command for text in pattern.findall(line) for command in _alternatives(text)]
            found += [(str(document.relative_to(ROOT)), command) for command in shown]
    return found


def _alternatives(text: str) -> list[str]:
    """`batch ls|show` are two commands."""
    if found := re.match(r"([a-z-]+) ([a-z-]+(?:\|[a-z-]+)+)(.*)", text):
        return [f"{found[1]} {verb}{found[3]}" for verb in found[2].split("|")]
    return [text]


def _links() -> list[tuple[Path, str]]:
    return [
        (document, target)
        for document in DOCUMENTS
        for target in re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", document.read_text())
    ]


@functools.cache
def _help(*words: str) -> str:
    program = Path(sys.executable).with_name("zubble")
    environment = os.environ | {"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [program, *words, "--help"], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert done.returncode == 0, f"zubble {' '.join(words)} --help: {done.stdout}{done.stderr}"
    return done.stdout


def _split(command: str) -> tuple[tuple[str, ...], list[str]]:
    """The words that name the command, and the options given to it (not to the program behind `--`)."""
    parts = shlex.split(command.partition(" #")[0])
    words = tuple(parts[: 2 if parts[0] in GROUPS else 1])
    own = parts[: parts.index("--")] if "--" in parts else parts
    named = (part.partition("=")[0] for part in own if part.startswith("--"))
    return words, [ALIASES.get(name, name) for name in named]


@pytest.mark.parametrize(("document", "command"), sorted(set(_commands())))
def test_a_command_in_a_document_exists_with_its_options(document: str, command: str):
    words, options = _split(command)
    text = _help(*words)
    missing = [option for option in options if not re.search(rf"{option}(?![\w-])", text)]
    assert not missing, f"{document}: zubble {' '.join(words)} has no {missing}"


@pytest.mark.parametrize("document", ["README.md", "docs/how-to/task-file.md"])
def test_the_task_that_a_document_shows_is_read(document: str, tmp_path: Path):
    [line] = _blocks(document, "json")
    file = tmp_path / "tasks.jsonl"
    file.write_text(line)
    [parcel] = read(file, TaskDefaults(batch="demo", model="mine"))
    assert parcel.envelope.source_id == "sum-1"


def test_the_description_of_the_task_file_names_every_field():
    described = set(re.findall(r"`([a-z_.]+)`", (ROOT / "docs/how-to/task-file.md").read_text()))
    verify = {f"verify.{name}" for name in VerifyLine.model_fields}
    wanted = {*TaskLine.model_fields, *LoopBudget.model_fields, *verify} - {"verify"}
    assert wanted - described == set()


@pytest.mark.parametrize("document", ["README.md", "charts/zubble-queue/README.md"])
def test_the_model_that_a_document_shows_is_a_valid_one(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shown = _blocks(document, "toml") or [
        yaml.safe_load(block)["config"] for block in _blocks(document, "yaml")
    ]
    file = tmp_path / "zubble.toml"
    file.write_text("".join(shown))
    monkeypatch.setenv("ZUBBLE_CONFIG", str(file))
    assert set(Settings.load().models) == {"mine"}


def _blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_readme_shows_commands():
    assert len({command for document, command in _commands() if document == "README.md"}) >= 5


@pytest.mark.parametrize(("document", "target"), _links(), ids=str)
def test_a_link_in_a_document_leads_somewhere(document: Path, target: str):
    if target.startswith(("http://", "https://", "#")):
        return
    assert (document.parent / target.partition("#")[0]).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize(
    "script", sorted(path for path in (ROOT / "script").iterdir()), ids=lambda path: path.name
)
def test_a_script_can_be_started_and_says_what_it_does(script: Path):
    assert os.access(script, os.X_OK)
    first, second = script.read_text().splitlines()[:2]
    assert first == "#!/bin/sh"
    assert second.startswith("# ")


def test_every_script_that_contributing_names_is_there():
    named = set(re.findall(r"script/[a-z-]+", (ROOT / "CONTRIBUTING.md").read_text()))
    assert {name for name in named if not (ROOT / name).is_file()} == set()


def test_contributing_fits_one_screen():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 50


def test_the_changelog_has_a_place_for_the_next_change():
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
