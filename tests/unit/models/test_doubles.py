"""The doubles that are shipped to users."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from zubble_queue import testing
from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import BadInput, MissingExtra, OperatorError
from zubble_queue.testing import RecordingWatcher, structured_reply


def test_a_recording_watcher_hears_everything_until_it_cuts():
    watcher = RecordingWatcher(cut_after=2, reason="loop:text")
    assert watcher.feed("reasoning", "a") is None
    cut = watcher.feed("text", "b")
    assert (cut.reason, cut.evidence) == ("loop:text", {"pieces": 2})
    assert (watcher.heard("text"), watcher.heard("reasoning"), watcher.heard("tool")) == ("b", "a", "")


def test_a_structured_reply_is_one_json_object():
    reply = structured_reply("run", command="ls", plan_step_id=1)
    assert json.loads(reply) == {"action": "run", "command": "ls", "plan_step_id": 1}


def test_the_doubles_of_the_worker_are_imported_when_they_are_asked_for():
    program = (
        "import sys, zubble_queue.testing as t; assert 'zubble_worker' not in sys.modules;"
        "t.ScriptedModel, t.MockEndpoint, t.Script; assert 'zubble_worker' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_the_worker_a_double_of_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zubble_worker.models.scripted", None)
    with pytest.raises(MissingExtra, match=r"zubble-queue\[worker\]"):
        _ = testing.ScriptedModel


def test_an_unknown_name_is_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = testing.Nothing


async def test_a_scripted_model_comes_from_a_table_and_remembers_what_it_was_asked(tmp_path):
    (tmp_path / "s.json").write_text('{"rules": [{"when": {"model": "solver"}, "turns": ["hello"]}]}')
    table = {"backend": "scripted", "script": str(tmp_path / "s.json"), "price": "free"}
    model = testing.ScriptedModel.from_config("solver", ModelConfig.model_validate(table))
    asked = [Message("user", "hi")]
    reply = await model.query(asked, CallOptions(max_tokens=10, deadline_seconds=5), RecordingWatcher())
    assert (reply.text, model.name) == ("hello", "solver")
    assert model.calls[0].messages == tuple(asked)


@pytest.mark.parametrize(
    ("content", "price", "error"),
    [("{}", "free", BadInput), ('{"rules": [{"turns": ["x"]}]}', "genai-prices", OperatorError)],
)
def test_a_scripted_model_without_a_script_or_a_price_is_refused(tmp_path, content, price, error):
    (tmp_path / "s.json").write_text(content)
    table = {"backend": "scripted", "script": str(tmp_path / "s.json"), "price": price}
    with pytest.raises(error):
        testing.ScriptedModel.from_config("solver", ModelConfig.model_validate(table))
