"""Templates and tools through a real worker: from a task file to bubblewrap and the endpoint."""

from __future__ import annotations

import json
from pathlib import Path

from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Parcel, Submission, TaskDefaults
from zubble_queue.formats import envelopes

from .conftest import BATCH

TEMPLATE = "Template of {{ source_id }}.\n\n{{ rules }}"
TASK = {
    "description": "Make done.txt.",
    "allowed_tools": ["read", "write", "edit"],
    "verify": {"command": "grep -q new done.txt"},
    "protocol": "custom",
    "prompt": {"template": "mine.j2", "replies": "text"},
}


def use(tool: str, **arguments: str) -> str:
    return f"```tool\n{json.dumps({'tool': tool, 'arguments': arguments})}\n```"


def parcels(tmp_path: Path, name: str, template: str = TEMPLATE) -> list[Parcel]:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "mine.j2").write_text(template)
    (folder / "tasks.jsonl").write_text(json.dumps({**TASK, "id": name}))
    return list(envelopes.read(folder / "tasks.jsonl", TaskDefaults(batch=BATCH, model="mock")))


async def test_a_task_with_a_template_and_tools_of_its_own_is_done(install, tmp_path):
    turns = [
        use("write", path="done.txt", content="old\n"),
        use("edit", path="done.txt", old="old", new="new"),
    ]
    zubble = await install(
        {"Template of good.": [*turns, use("read", path="done.txt"), "<done>"]}, contains="{}"
    )
    submission = Submission(BatchInfo(name=BATCH, model="mock"), parcels(tmp_path, "good"))
    await zubble.dispatcher.submit(submission)
    zubble.start_worker()

    view = await zubble.sealed("good")

    assert view.outcome == "verified"
    assert view.ending is not None
    assert view.ending.files_touched == ("done.txt",)


async def test_a_template_that_cannot_be_rendered_makes_its_task_invalid_and_buys_nothing(install, tmp_path):
    zubble = await install({"never": ["never"]})
    submission = Submission(
        BatchInfo(name=BATCH, model="mock"), parcels(tmp_path, "bad", "{{ labels.absent }} {{ rules }}")
    )
    await zubble.dispatcher.submit(submission)
    zubble.start_worker()

    view = await zubble.sealed("bad")

    assert view.outcome == "invalid"
    assert view.ending is not None
    assert "prompt.template: UndefinedError" in view.ending.reason
    assert not zubble.endpoint.calls
