"""The text protocol: one fenced block a turn, `<done>` as the last line outside fences, and nothing else."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.question import AskRequest
from zubble_worker.protocols import fenced
from zubble_worker.protocols.base import NotUnderstood
from zubble_worker.protocols.text import Text
from zubble_worker.protocols.tools import SHAPES

from .conftest import envelope

PROTOCOL = Text(envelope(protocol="text"))
PLAN = "I will do it.\n\n```plan\n1. make the file\n2. submit\n```\n"
MAKE = "Making it.\n\n```sh 1\necho made > done.txt\n```\n"
NOTHING = "Let me think about it."


def test_a_fenced_command_is_run():
    action = PROTOCOL.parse(MAKE)

    assert (action.action, action.command, action.plan_step_id) == ("run", "echo made > done.txt", 1)
    assert action.reasoning == "Making it."


@pytest.mark.parametrize("opening", ["```sh", "```bash", "```shell", "```", "~~~sh", "````sh", "   ```SH"])
def test_every_way_to_open_a_command_is_known(opening):
    closing = opening.strip().lower().rstrip("abehls")
    assert PROTOCOL.parse(f"{opening}\nls\n{closing}").command == "ls"


def test_a_command_keeps_what_looks_like_a_fence_or_an_ending():
    command = "cat > a.md <<'E'\n```\n<done>\nUser: hello\n```\nE"

    assert PROTOCOL.parse(f"````sh\n{command}\n````").command == command


def test_a_block_in_another_language_is_talk():
    reply = "```python\nimport os\n```\nNow:\n```sh\nls\n```"

    assert PROTOCOL.parse(reply).command == "ls"


def test_a_plan_comes_alone_or_with_a_command():
    alone, both = PROTOCOL.parse(PLAN), PROTOCOL.parse(f"{PLAN}\n```sh\nls\n```")

    assert (alone.action, alone.steps) == ("plan", ["make the file", "submit"])
    assert (both.action, both.revised_plan, both.command) == ("run", ["make the file", "submit"], "ls")


def test_a_tool_comes_as_json():
    action = PROTOCOL.parse('```tool 2\n{"tool": "read", "arguments": {"path": "a"}}\n```')

    assert (action.tool, action.arguments, action.plan_step_id) == ("read", {"path": "a"}, 2)


def test_a_question_is_a_block_that_is_offered_where_a_person_may_be_asked():
    action = PROTOCOL.parse("I wonder.\n\n```ask 2\nWhich port?\nOr none?\n```")

    assert (action.action, action.question, action.plan_step_id) == ("ask", "Which port?\nOr none?", 2)
    asking = Text(envelope(protocol="text", ask=AskRequest(human=True)))
    assert "```ask" in asking.rules()
    assert "```ask" not in PROTOCOL.rules()


@pytest.mark.parametrize(
    "text", ["<done>", "All tests pass.\n\n<done>\n\n  \n", "```python\nx\n```\nDone.\n<done>"]
)
def test_done_as_the_last_line_is_a_submission(text):
    assert PROTOCOL.parse(text).action == "submit"


def test_what_was_said_before_the_end_is_the_report():
    assert PROTOCOL.parse("The file is there.\n<done>").report == "The file is there."
    assert PROTOCOL.parse("There is no compiler.\n<give_up>").report == "There is no compiler."
    assert PROTOCOL.parse("<give_up>").report == "no reason given"


@pytest.mark.parametrize(
    "text",
    [
        "I write <done> when it is done.",
        "<done>\nNo, wait: one test fails.",
        "```text\n<done>\n```",
        "Done:\n```python\nprint()\n<done>\n```",
        "<done>\n```python\nprint()\n```",
        "> <done>",
        "<DONE>",
    ],
)
def test_done_anywhere_else_is_none(text):
    with pytest.raises(NotUnderstood, match="neither a fenced block"):
        PROTOCOL.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (NOTHING, "neither a fenced block with a command, nor <done>"),
        ("```sh\nls\n```\n```sh\npwd\n```", "more than one block"),
        (f"{PLAN}{PLAN}", "more than one block"),
        ("```sh\nls\n```\n<done>", "a block and <done> in one reply"),
        ("```sh\nls", "a fenced block is not closed"),
        ("```sh\n\n```", "the block is empty"),
        ("```plan\n\n```", "the plan is empty"),
        ("```sh\nls\n```\nUser: thanks\n", "another speaker's turn"),
        ("```tool\nread a\n```", "holds no JSON object"),
        ('```tool\n{"tool": "read", "path": "a"}\n```', "and nothing else"),
        ('```tool\n{"tool": 3}\n```', "tool: Input should be a valid string"),
        ("```tool\n" + "[" * 100_000 + "\n```", "holds no JSON object"),
    ],
)
def test_anything_else_is_refused_with_its_reason(text, reason):
    with pytest.raises(NotUnderstood, match=reason):
        PROTOCOL.parse(text)


def test_speakers_stop_a_reply_at_the_start_of_a_line_only():
    assert all(stop.startswith("\n") for stop in PROTOCOL.stops)
    assert PROTOCOL.parse("The key is `User: x`.\n```sh\nls\n```").command == "ls"
    assert PROTOCOL.schema is None


def test_only_allowed_tools_are_offered():
    rules = Text(envelope(tools=("shell", *SHAPES), test_command="true")).rules()

    assert all(f'"tool": "{tool}"' in rules for tool in SHAPES)
    assert "```tool" not in PROTOCOL.rules()
    assert "```sh" not in Text(envelope(tools=("read",))).rules()


def test_each_example_in_the_rules_is_understood():
    blocks = fenced.split(Text(envelope(tools=("shell", "read"))).rules()).blocks

    assert [block.words[0] for block in blocks] == ["plan", "sh", "tool"]


async def test_a_task_is_done_in_text(drive):
    run = await drive(PLAN, MAKE, "It is there.\n<done>", protocol="text")

    assert (run.stopped.stop, run.stopped.report) == (Stop.SUBMITTED, "It is there.")
    assert run.transcript.plan.steps[0].evidence == "`echo made > done.txt` exited 0"


@pytest.mark.parametrize(
    ("failed", "stop"), [(2, Stop.SUBMITTED), (3, Stop.PARSE_ERROR), (4, Stop.PARSE_ERROR)]
)
async def test_the_third_failed_repair_in_a_row_ends_the_run(drive, failed, stop):
    run = await drive(*([NOTHING] * 2 * failed), MAKE, "<done>", protocol="text")

    assert run.stopped.stop is stop
    assert len(run.books.of_type("format_error")) == 2 * min(failed, 3)


async def test_a_reply_that_was_understood_begins_the_count_anew(drive):
    bad = [NOTHING] * 4
    run = await drive(*bad, PLAN, *bad, MAKE, "<done>", protocol="text")

    assert run.stopped.stop is Stop.SUBMITTED


async def test_a_repair_that_is_understood_is_no_format_error_of_the_run(drive):
    run = await drive(*([NOTHING, MAKE] * 2), NOTHING, "<done>", protocol="text")

    assert run.stopped.stop is Stop.SUBMITTED
