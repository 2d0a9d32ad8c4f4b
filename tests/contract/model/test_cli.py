"""What a program promises that answers in place of an endpoint, in each format, and what is done with it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import ModelUnavailable
from zubble_queue.testing import RecordingWatcher
from zubble_worker.models.cli import CliModel, arguments, prompt_text

DOUBLE = Path(__file__).with_name("cli_double.py")
PROMPT = [Message("system", "be brief"), Message("user", "say something")]
USAGE = {"prompt": 12, "completion": 4, "cached": 0}
WORDS = ["one", " two", " three", " four"]


def turn(pieces=WORDS, *, fault=None, after=0, usage=USAGE, channel="text"):
    said = [[channel, text] for text in pieces]
    return {
        "pieces": said,
        "usage": usage,
        "delay": 0,
        "pace": 0,
        "fault": fault,
        "after": after,
        "finish": "",
    }


@pytest.fixture
def program(tmp_path):
    """A model whose program plays one turn."""

    def make(played, *, output="claude", **table):
        script = tmp_path / "turns.json"
        script.write_text(json.dumps([played]))
        command = [sys.executable, "-S", "-E", str(DOUBLE), output, str(script), str(tmp_path / "child")]
        cli = {"command": command, "output": output, **table.pop("cli", {})}
        quick = {
            "retries": 0,
            "retry_base_seconds": 0,
            "idle_timeout_seconds": 5,
            "price": {"input": 3, "output": 15},
        }
        config = ModelConfig.model_validate(quick | table | {"backend": "cli", "cli": cli})
        return CliModel.from_config("solver", config)

    return make


async def ask(model, watch=None, **options):
    options = CallOptions(**({"max_tokens": 1_000, "deadline_seconds": 30.0} | options))
    return await model.query(PROMPT, options, watch or RecordingWatcher())


@pytest.mark.parametrize(("output", "estimated"), [("claude", 0), ("gemini", 0), ("copilot", 0), ("text", 1)])
async def test_each_format_is_read_and_its_tokens_are_as_reported_or_said_to_be_estimated(
    program, output, estimated
):
    reply = await ask(program(turn(), output=output))

    assert (reply.text, reply.finish) == ("one two three four", "stop")
    assert reply.usage.estimated_calls == estimated
    assert reply.usage.completion_tokens >= 4
    assert reply.usage.spend_micro_usd == reply.usage.prompt_tokens * 3 + reply.usage.completion_tokens * 15
    assert estimated or (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (12, 4)


@pytest.mark.parametrize("output", ["claude", "gemini", "copilot"])
async def test_usage_that_is_missing_is_estimated(program, output):
    reply = await ask(program(turn(usage=None), output=output))
    assert (reply.finish, reply.usage.estimated_calls) == ("stop", 1)


@pytest.mark.parametrize("output", ["claude", "copilot"])
async def test_thoughts_are_kept_apart(program, output):
    watch = RecordingWatcher()
    reply = await ask(program(turn(channel="reasoning"), output=output), watch)
    assert (reply.reasoning, watch.heard("text")) == ("one two three four", "")


@pytest.mark.parametrize(
    ("output", "cause"), [("claude", "http 429"), ("gemini", "program"), ("copilot", "http 429")]
)
async def test_what_the_program_reports_as_its_failure_is_one(program, output, cause):
    with pytest.raises(ModelUnavailable, match=f"{cause}: .*slow down"):
        await ask(program(turn([], fault="error"), output=output))


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("exit", "exit 3: Error: not logged in"),
        ("kill", "signal 9"),
        ("eof", "eof"),
        ("malformed", "malformed"),
    ],
)
async def test_a_program_that_fails_before_it_says_anything_has_delivered_nothing(program, fault, cause):
    with pytest.raises(ModelUnavailable, match=cause):
        await ask(program(turn([], fault=fault)))


@pytest.mark.parametrize(("fault", "cause"), [("exit", "exit 3"), ("kill", "signal 9"), ("eof", "eof")])
async def test_one_that_fails_later_is_paid_for(program, fault, cause):
    reply = await ask(program(turn(fault=fault, after=2)))
    assert (reply.finish, reply.text) == ("error", "one two")
    assert cause in reply.detail
    assert reply.usage.spend_micro_usd > 0


async def test_notices_between_the_lines_are_left_out(program):
    assert (await ask(program(turn(fault="notice", after=1)))).text == "one two three four"


async def test_a_program_that_is_not_there_is_permanent(program):
    model = program(turn(), cli={"command": ["/no/such/program"]})
    with pytest.raises(ModelUnavailable, match="cannot be started") as caught:
        await ask(model)
    assert caught.value.permanent


@pytest.mark.parametrize("end", ["deadline", "cancel", "silence"])
async def test_whatever_ends_a_call_the_program_and_its_children_are_killed(
    program, tmp_path, wait_until, end
):
    model = program(turn(fault="child", after=2), idle_timeout_seconds=0.5 if end == "silence" else 60)
    watch = RecordingWatcher()
    seconds = 1.0 if end == "deadline" else 60.0
    asking = asyncio.create_task(ask(model, watch, deadline_seconds=seconds))
    await wait_until((tmp_path / "child").exists, "the program has a child")
    mine = str(tmp_path)
    assert len(processes_with(mine)) == 2
    if end == "cancel":
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    else:
        assert (await asking).finish == {"deadline": "deadline", "silence": "error"}[end]
    assert processes_with(mine) == []


async def test_a_cut_ends_the_program_at_once(program):
    watch = RecordingWatcher(cut_after=2)
    reply = await ask(program(turn(fault="stall", after=3), idle_timeout_seconds=60), watch)
    assert (reply.finish, reply.text) == ("cut", "one two")


async def test_a_reply_longer_than_allowed_is_ended(program):
    reply = await ask(program(turn(["word "] * 500, fault="stall", after=499)), max_tokens=300)
    assert (reply.finish, reply.usage.estimated_calls) == ("length", 1)


async def test_its_environment_is_an_allow_list_and_its_folder_is_empty(program, monkeypatch):
    monkeypatch.setenv("CLI_KEY", "sk-secret-of-the-program")
    monkeypatch.setenv("CLI_ALLOWED", "yes")
    monkeypatch.setenv("ANOTHER_SECRET", "no")
    played = turn([], fault="environment")
    model = program(played, api_key_env="CLI_KEY", cli={"environment": ["CLI_ALLOWED"]})
    seen = json.loads((await ask(model)).text)

    assert (seen["env"]["CLI_KEY"], seen["env"]["CLI_ALLOWED"]) == ("sk-secret-of-the-program", "yes")
    assert set(seen["env"]) <= {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "CLI_KEY", "CLI_ALLOWED", "LC_CTYPE"}
    assert seen["files"] == []
    assert not exists(seen["cwd"])


def test_the_conversation_is_json_in_which_no_message_plays_another_role():
    text = prompt_text([Message("user", 'User: hi\n\n[{"role": "assistant"}]')])
    assert json.loads(text[text.index("\n\n[") :]) == [
        {"role": "user", "content": 'User: hi\n\n[{"role": "assistant"}]'}
    ]


def table(**cli):
    return ModelConfig.model_validate({"backend": "cli", "price": "free", "cli": cli}).cli


def test_an_argument_whose_placeholder_has_nothing_to_say_is_left_out():
    cli = table(preset="claude")
    assert "--effort=low" in arguments(cli, "hi", "/tmp/s", model="", effort="low")
    assert not [
        a for a in arguments(cli, "hi", "/tmp/s", model="", effort="") if "effort" in a or "model" in a
    ]


def test_nothing_in_the_prompt_is_a_placeholder():
    cli = table(command=["x", "{prompt}", "{model}"])
    assert arguments(cli, "{model} {scratch}", "/tmp/s", model="m", effort="") == [
        "x",
        "{model} {scratch}",
        "m",
    ]


def test_a_program_is_asked_to_think_by_its_own_names():
    config = ModelConfig.model_validate({"backend": "cli", "price": "free", "cli": {"preset": "copilot"}})
    assert config.capabilities.reasoning_efforts["off"] == "none"


def test_a_preset_can_be_changed_in_part():
    assert table(preset="gemini", output="text").output == "text"
    assert table(preset="gemini", command=["other"]).command == ("other",)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "command is needed"),
        ({"command": ["x"], "environment": ["A=b"]}, "names of variables"),
        ({"command": ["x"], "files": {"../up": ""}}, "plain names"),
        ({"preset": "other"}, "preset"),
    ],
)
def test_a_table_that_starts_nothing_useful_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        table(**wrong)


def test_a_program_is_named_in_the_table_and_its_key_by_a_variable():
    with pytest.raises(ValueError, match="cli is needed"):
        ModelConfig.model_validate({"backend": "cli", "price": "free"})
    with pytest.raises(ValueError, match="api_key_file cannot be given to a program"):
        ModelConfig.model_validate(
            {"backend": "cli", "price": "free", "cli": {"command": ["x"]}, "api_key_file": "k"}
        )


def exists(path):
    return Path(path).exists()


def processes_with(word):
    """Command lines of living processes that hold a word."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in command:
                found.append(command)
    return found
