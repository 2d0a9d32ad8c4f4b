"""Event types are stable: the snapshot, the table in the documents, and what is written agree."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from zubble_queue.contracts.decisions import Allow, Decisions, Deny
from zubble_queue.testing import structured_reply as say

ROOT = Path(__file__).resolve().parents[3]
SNAPSHOT = Path(__file__).with_name("event-types.json")
TYPES = json.loads(SNAPSHOT.read_text())
CHANGED = (
    f"Events changed. Readers of stored logs rely on them: a type or field may be added, with its line in "
    f"{SNAPSHOT.name} and in docs/trajectory.md; none may go or mean something else."
)
_NOTED = re.compile(r"note\(.*?, '(\w+)', \{(.*?)\}\)", re.DOTALL)
"""An event that a script of the store appends."""
PLAN = say("plan", steps=["make it"])
LOOP = "again and again the very same words " * 900


def written() -> dict[str, set[str] | None]:
    """By type the fields that the code names; None where it adds others."""
    found: dict[str, set[str] | None] = {}
    for file in sorted((ROOT / "worker" / "zubble_worker").rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            type_ = call.args[0]
            if name in {"record", "_record"} and isinstance(type_, ast.Constant):
                fields = {keyword.arg for keyword in call.keywords}
                found[type_.value] = None if None in fields else fields
    for script in sorted((ROOT / "zubble_queue" / "stores" / "lua").glob("*.lua")):
        for type_, fields in _NOTED.findall(script.read_text()):
            found[type_] = set(re.findall(r"(\w+) = ", fields))
    return found


def described() -> dict[str, set[str]]:
    """The table of docs/trajectory.md."""
    table = (ROOT / "docs/trajectory.md").read_text().partition("## Events")[2].partition("## Exports")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", table, re.MULTILINE)
    return {type_: set(re.findall(r"`(\w+)`", fields)) for type_, fields in rows}


def test_every_type_that_is_written_is_in_the_snapshot_and_in_the_table():
    assert set(written()) == set(TYPES), CHANGED
    assert {type_: set(fields) for type_, fields in TYPES.items()} == described()


def test_the_fields_that_the_code_names_are_those_of_the_snapshot():
    named = {type_: fields for type_, fields in written().items() if fields is not None}

    assert named == {type_: set(TYPES[type_]) for type_ in named}, CHANGED


class _Policy(Decisions):
    """Denies one command, and the first end."""

    def __init__(self):
        self.ends = 0

    def before_dispatch(self, view, tool, command):
        return Deny("no") if "forbidden" in command else Allow()

    def wants_to_stop(self, view, action, report):
        self.ends += 1
        return Deny("look again") if self.ends == 1 else Allow()


@pytest.fixture
async def run(drive):
    """A run with as many kinds of events as one may have."""
    same = say("run", command="cat missing.txt", plan_step_id=1, reasoning="why", note="so")
    turns = (
        PLAN,
        "nonsense",
        same,
        same,
        same,
        say("run", command="forbidden"),
        say("ask", question="may I?"),
    )
    fresh = (
        say("run", command="touch done.txt", revised_plan=["other"], reasoning="it loops"),
        say("submit", report="done"),
    )
    return await drive(*turns, say("run", command=LOOP), fresh=fresh, decisions=_Policy())


def kind(value) -> str:
    """A value's type in JSON."""
    names = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
    return names.get(type(value), "array" if isinstance(value, list | tuple) else "object")


async def test_what_a_run_writes_is_as_the_snapshot_says(run):
    for event in run.books.events:
        known = TYPES[event.type]
        seen = {field: kind(value) for field, value in event.data.items()}
        assert {field for field, name in seen.items() if name not in known.get(field, [])} == set(), (
            f"{event.type}: {CHANGED}"
        )


async def test_the_run_that_is_looked_at_has_the_events_with_fields_of_their_own(run):
    seen = {event.type for event in run.books.events}

    open_ended = {type_ for type_, fields in written().items() if fields is None}
    assert open_ended - seen <= {"preflight_finished"}
