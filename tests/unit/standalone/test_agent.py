"""An agent without a queue, over a real (local) sandbox and a scripted model or a real endpoint."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import tarfile
import threading

import pytest

import zubble
from zubble import Agent, Journal, RepairProtocol, make_backend, run_task
from zubble.environments import local_env, sandboxed_env
from zubble.models import level_of, openai_model
from zubble_queue.errors import BadInput
from zubble_queue.testing import MockEndpoint, Script, ScriptedModel, structured_reply

REPAIR = RepairProtocol(report_path="report.md")
ASKED = [{"role": "user", "content": "nginx does not start; repair it"}]
REPORT = structured_reply("run", command="echo 'The port was taken.' > report.md")
DONE = structured_reply("submit", report="repaired")


def agent(*turns, **given):
    model = ScriptedModel(Script.model_validate({"rules": [{"turns": turns, "then": "last"}]}))
    return Agent(model, given.pop("env", None) or local_env(), REPAIR, given.pop("journal", None), **given)


@pytest.fixture
def endpoint():
    """Start a mock endpoint in a thread of its own: what is tested blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    started = []

    def start(*turns):
        script = Script.model_validate({"rules": [{"turns": turns, "then": "last"}]})
        mock = MockEndpoint(script, keep_requests=True)
        asyncio.run_coroutine_threadsafe(mock.start(), loop).result(10)
        started.append(mock)
        return mock

    yield start
    for mock in started:
        asyncio.run_coroutine_threadsafe(mock.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_the_package_exports_five_names():
    assert sorted(zubble.__all__) == ["Agent", "Journal", "RepairProtocol", "make_backend", "run_task"]
    assert RepairProtocol().report_path == "/findings/report.md"


def test_importing_and_making_an_agent_imports_neither_celery_nor_redis():
    code = (
        "import sys, zubble\n"
        "zubble.make_backend('zubble', 'm', 'http://127.0.0.1:1')\n"
        "print(sorted({'celery', 'kombu', 'redis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_claim_of_done_is_heard_when_the_report_is_there_and_is_not_called_verified():
    result = agent(DONE, REPORT, DONE).run_task(ASKED, 60, 4_000)

    assert result.text == "The port was taken."
    assert (result.stop, result.verified) == ("submitted", None)
    assert result.perf["iterations"] == 3
    assert result.perf["total_tokens"] > 0
    assert json.loads(json.dumps(result.perf)) == result.perf
    with tarfile.open(fileobj=io.BytesIO(result.work_tree)) as tree:
        assert "report.md" in {name.removeprefix("./") for name in tree.getnames()}


@pytest.mark.parametrize(("command", "verified"), [("touch good", True), ("touch bad", False)])
def test_with_a_verify_command_only_that_verifies(command, verified):
    turns = [structured_reply("run", command=command), DONE, structured_reply("report", report="I cannot")]

    result = agent(*turns, verify="test -f good").run_task(ASKED, 60)

    assert result.verified is verified
    assert result.stop == ("submitted" if verified else "gave_up")
    assert result.text == ("repaired" if verified else "I cannot")


def test_the_same_agent_works_again_and_begins_with_the_tree_it_left():
    first = agent(REPORT, DONE)
    left = run_task(ASKED, 60, agent=first).work_tree

    again = agent(DONE, env=local_env(left)).run_task(ASKED, 60)

    assert (again.stop, again.perf["iterations"]) == ("submitted", 1)


def test_the_journal_survives_runs_of_one_task_and_is_cleared_for_another(tmp_path, endpoint):
    failing = structured_reply("run", command="pytest nothing", note="try the log next")
    agent(failing, structured_reply("report", report="no"), journal=Journal(tmp_path)).run_task(ASKED, 60)
    kept = Journal(tmp_path)
    assert [(entry.command, entry.category) for entry in kept.entries] == [("pytest nothing", "verification")]
    assert kept.path == tmp_path / ".zubble/journal.json"

    mock = endpoint(structured_reply("report", report="no"))
    gen = make_backend("zubble", "m", mock.url, journal_dir=str(tmp_path))
    gen(ASKED, 60)
    assert "✗ pytest nothing" in str(mock.calls[0].request)
    assert "[Note: try the log next]" in str(mock.calls[0].request)

    gen([{"role": "user", "content": "another task"}], 60)
    assert "pytest nothing" not in str(mock.calls[1].request)
    assert Journal(tmp_path).entries == ()


def test_a_journal_file_that_is_none_is_refused_by_its_name(tmp_path):
    (tmp_path / ".zubble").mkdir()
    (tmp_path / ".zubble/journal.json").write_text("[1]")
    with pytest.raises(BadInput, match=r"journal\.json is not a journal"):
        Journal(tmp_path)


def test_the_drop_in_function_takes_what_a_harness_gives_and_returns_the_report(endpoint):
    mock = endpoint(structured_reply("run", command="echo cause > report.md"), DONE)
    gen = make_backend("zubble", "qwen", mock.url.removesuffix("/v1"), report_path="report.md")

    text, nothing, perf = gen(
        [{"role": "system", "content": "You repair."}, *ASKED],
        60,
        {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "high"}},
        maxtok=700,
        stop=["User:", "\nUser:"],
    )

    assert (text, nothing, perf["stop"], perf["calls"]) == ("cause", None, "submitted", 2)
    body = mock.calls[0].request
    assert body["max_tokens"] == 700
    assert body["chat_template_kwargs"] == {"enable_thinking": True, "reasoning_effort": "xhigh"}
    assert "stop" not in body
    assert "post-mortem to the file report.md" in body["messages"][0]["content"]
    assert "You repair.\n\nnginx does not start" in body["messages"][1]["content"]


@pytest.mark.bubblewrap
def test_a_sandbox_has_room_for_the_report_where_it_is_expected():
    command = "echo found > /findings/report.md"
    model = ScriptedModel(
        Script.model_validate({"rules": [{"turns": [structured_reply("run", command=command), DONE]}]})
    )
    result = Agent(model, sandboxed_env()).run_task(ASKED, 60)
    assert (result.text, result.stop) == ("found", "submitted")


def test_stop_sequences_are_sent_where_replies_are_text(endpoint):
    mock = endpoint("```sh\necho seen > report.md\n```", "It works.\n<done>")
    model = openai_model("m", mock.url)
    protocol = RepairProtocol("report.md", replies="text")

    result = Agent(model, local_env(), protocol, stop=["</s>", "\nUser:"]).run_task(ASKED, 60)

    assert (result.text, result.stop) == ("seen", "submitted")
    assert "\nUser:" in mock.calls[0].request["stop"]


def test_a_run_ends_at_its_time():
    result = agent(structured_reply("run", command="sleep 20")).run_task(ASKED, 0.5)
    assert result.stop == "limit:wallclock"
    assert result.text == "max_wallclock_seconds=1 exceeded"


@pytest.mark.parametrize(
    ("messages", "seconds", "problem"),
    [
        ([], 60, "messages must not be empty"),
        ([{"role": "robot", "content": "x"}], 60, r"messages\[0\] must have role"),
        (ASKED, 3_601, "timeout"),
        (ASKED, 0, "timeout"),
    ],
)
def test_a_task_that_cannot_be_one_is_refused_before_anything_is_opened(messages, seconds, problem):
    with pytest.raises(BadInput, match=problem):
        agent(DONE).run_task(messages, seconds)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"via": "litellm"}, "via must be 'zubble', not 'litellm'"),
        ({"base": "nowhere"}, "base"),
        ({"container": "-v /:/host"}, "container"),
    ],
)
def test_a_backend_says_what_it_cannot_use(given, problem):
    with pytest.raises(BadInput, match=problem):
        make_backend(**{"via": "zubble", "model": "m", "base": "http://127.0.0.1:1", **given})


@pytest.mark.parametrize(
    ("kwargs", "level"),
    [
        (None, "off"),
        ({"level": "xhigh"}, "xhigh"),
        ({"enable_thinking": True}, "medium"),
        ({"enable_thinking": False, "reasoning_effort": "high"}, "off"),
        ({"reasoning_effort": "low"}, "low"),
    ],
)
def test_thinking_is_asked_for_in_the_words_of_chat_templates(kwargs, level):
    assert level_of(kwargs) == level


@pytest.mark.parametrize("kwargs", [{"level": "huge"}, {"reasoning_effort": "huge"}, {"top_k": 1}])
def test_thinking_that_is_not_known_is_refused(kwargs):
    with pytest.raises(BadInput, match="level_kwargs"):
        agent(DONE, level_kwargs=kwargs)
