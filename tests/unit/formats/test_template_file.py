"""A task file names a template beside it; no other file of its reader gets into a prompt."""

from __future__ import annotations

import json
import os

import pytest

from zubble_queue.contracts.submission import TaskDefaults
from zubble_queue.errors import BadInput
from zubble_queue.formats import envelopes, template_file

DEFAULTS = TaskDefaults(batch="b", model="m")


def lines(tmp_path, **fields):
    folder = tmp_path / "tasks"
    folder.mkdir(exist_ok=True)
    task = {"id": "a", "description": "Do it.", "verify": {"command": "true"}, **fields}
    (folder / "tasks.jsonl").write_text(json.dumps(task))
    return folder / "tasks.jsonl"


def test_a_template_travels_as_a_blob(tmp_path):
    file = lines(tmp_path, protocol="custom", prompt={"template": "mine.j2", "replies": "text"})
    (file.parent / "mine.j2").write_text("Hello {{ description }}\n{{ rules }}")

    [parcel] = envelopes.read(file, DEFAULTS)

    template = parcel.envelope.prompt.template
    assert parcel.blobs[template.ref] == b"Hello {{ description }}\n{{ rules }}"
    assert parcel.envelope.prompt.replies == "text"


def test_another_template_is_another_task(tmp_path):
    hashes = set()
    for text in ("one", "two"):
        file = lines(tmp_path, protocol="custom", prompt={"template": "mine.j2"})
        (file.parent / "mine.j2").write_text(text)
        hashes.add(envelopes.read(file, DEFAULTS)[0].envelope.content_hash())

    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("secret.env", "must be a file *.j2 below the folder"),
        ("/etc/secret.j2", "must be a file *.j2 below the folder"),
        ("../secret.j2", "must be a file *.j2 below the folder"),
        ("link.j2", "leads out of the folder"),
        ("out/secret.j2", "leads out of the folder"),
        ("absent.j2", "cannot be read: No such file"),
        ("folder.j2", "cannot be read: Is a directory"),
        ("pipe.j2", "is no file"),
        ("binary.j2", "is not UTF-8"),
        ("broken.j2", "line 2: Expected an expression"),
        ("unknown.j2", "there is no variable 'descripton'; known: place, rules"),
        ("import.j2", "must not include, import or extend"),
        ("large.j2", "is larger than 65536 bytes"),
    ],
)
def test_a_template_that_cannot_be_used_is_one_sentence(tmp_path, name, problem):
    file = lines(tmp_path, protocol="custom", prompt={"template": name})
    folder = file.parent
    (tmp_path / "secret.j2").write_text("the reader's own")
    (folder / "link.j2").symlink_to(tmp_path / "secret.j2")
    (folder / "out").symlink_to(tmp_path)
    (folder / "folder.j2").mkdir()
    os.mkfifo(folder / "pipe.j2")
    (folder / "binary.j2").write_bytes(b"\xff")
    (folder / "broken.j2").write_text("a\n{{ }}")
    (folder / "unknown.j2").write_text("{{ descripton }}")
    (folder / "import.j2").write_text("{% import 'a' as b %}{{ b }}")
    (folder / "large.j2").write_text("a" * (template_file.TEMPLATE_BYTES + 1))

    with pytest.raises(BadInput) as wrong:
        envelopes.read(file, DEFAULTS)

    [sentence] = wrong.value.problems
    assert sentence.startswith("tasks.jsonl line 1: prompt.template: ")
    assert problem in sentence


def test_a_template_may_have_variables_of_its_own(tmp_path):
    file = lines(tmp_path, protocol="custom", prompt={"template": "own.j2"})
    (file.parent / "own.j2").write_text(
        "{% macro m(x) %}{{ x }}{{ caller() }}{% endmacro %}{% set y = 1 %}"
        "{% for tool in tools %}{{ loop.index }}{{ tool }}{{ y }}{% endfor %}{{ m(range(3)) }}"
    )

    assert envelopes.read(file, DEFAULTS)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"protocol": "custom"}, "prompt.template: a template belongs to the protocol 'custom'"),
        ({"protocol": "fast"}, "protocol: "),
        ({"prompt": {"report_path": ""}}, "prompt.report_path: "),
        ({"prompt": {"file": "a.j2"}}, "prompt.file: there is no such field"),
    ],
)
def test_a_protocol_that_cannot_be_had_is_one_sentence(tmp_path, fields, problem):
    with pytest.raises(BadInput) as wrong:
        envelopes.read(lines(tmp_path, **fields), DEFAULTS)
    assert problem in str(wrong.value)
