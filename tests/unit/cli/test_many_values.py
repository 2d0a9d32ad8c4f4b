"""Options that take several values, or a default one, as they are typed."""

from __future__ import annotations

import pytest

from zubble_queue.cli.defaults import task_defaults
from zubble_queue.cli.main import _without_aliases
from zubble_queue.cli.models import endpoint_model
from zubble_queue.contracts.task import LoopBudget


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (
            ["run", "--stop-sequences", "User:", "x y", "--env", "local"],
            ["run", "--stop-sequences=User:", "--stop-sequences=x y", "--sandbox", "local"],
        ),
        (["run", "--stop-sequences=a", "tasks.jsonl"], ["run", "--stop-sequences=a", "tasks.jsonl"]),
        (["run", "--stop-sequences", "a"], ["run", "--stop-sequences=a"]),
        (["run", "--stop-sequences", "--json"], ["run", "--stop-sequences", "--json"]),
        (["run", "--journal"], ["run", "--journal=.zubble/journal.json"]),
        (["run", "--journal", "--json"], ["run", "--journal=.zubble/journal.json", "--json"]),
        (["run", "--journal", "j.json"], ["run", "--journal", "j.json"]),
        (["sandbox", "exec", "--", "--journal"], ["sandbox", "exec", "--", "--journal"]),
    ],
)
def test_several_values_become_as_many_options(typed, meant):
    assert _without_aliases(typed) == meant


def test_a_line_break_can_be_typed_in_a_stop_sequence():
    made = task_defaults(batch="b", model="m", budget=LoopBudget(), stop=["\\nUser:", "\nUser:", "</s>"])
    assert made.stop == ("\nUser:", "</s>")


def test_an_endpoint_on_this_machine_is_free_by_default():
    assert endpoint_model("m", "http://127.0.0.1:8000/v1", None, None).price == "free"
