"""A stream that was closed goes on from what of it was sound, or is asked for again in a window with room."""

from __future__ import annotations

import json

import pytest

from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.testing import MockEndpoint, Script
from zubble_queue.testing import structured_reply as say
from zubble_worker.observers.repetition import WARNING
from zubble_worker.pressure import Pressure, Window

MODEL = {
    "backend": "scripted",
    "script": "in-python.json",
    "price": {"input": 3, "output": 15},
    "retries": 0,
    "context": 32_000,
}
GOES_ON = ModelConfig.model_validate(MODEL | {"capabilities": {"prefix": "last_message"}})
MAKE = say("run", command="echo made > done.txt")
SUBMIT = say("submit", report="there")


def goes_on(beginning, rest):
    """How a reply that begins so goes on."""
    return {"when": {"continuing": beginning}, "turns": [rest]}


LOOP = {"repeat": "truncated ", "times": 2_000}


async def test_a_reply_that_begins_to_loop_goes_on_from_before_the_loop_with_the_warning(drive):
    run = await drive(
        {"text": ["I make the file. ", LOOP]},
        SUBMIT,
        rules=[goes_on(WARNING, "So:\n```bash\necho made > done.txt\n```\n")],
        config=GOES_ON,
        protocol="text",
        max_context_resets=0,
    )

    started, finished = run.books.of_type("call_started"), run.books.of_type("call_finished")
    assert [data["kind"] for data in started[:2]] == ["step", "restart"]
    assert started[1]["prefix"] == f"I make the file.\n{WARNING}\n"
    assert started[1]["cause"]["action"] == finished[0]["nudge_mode"] == "restart_prefix"
    assert (finished[0]["finish"], finished[0]["repetition"][0]["threshold"]) == ("cut", 50)
    assert finished[1]["text"].startswith("I make the file.\nSo:\n")
    assert run.books.of_type("command_finished")[0]["command"] == "echo made > done.txt"
    assert not any("truncated" in prompt or WARNING in prompt for prompt in run.prompts[2:])


@pytest.mark.parametrize(
    ("prefix", "fields"),
    [
        ("last_message", {}),
        ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": False}),
    ],
)
async def test_over_http_the_stream_is_closed_soon_and_the_endpoint_asked_in_its_own_words(
    drive, prefix, fields
):
    table = {"base_url": "http://127.0.0.1:1/v1", "price": "free", "capabilities": {"prefix": prefix}}
    async with MockEndpoint(Script.always(""), keep_requests=True) as endpoint:
        run = await drive(
            {"text": ["I make the file. ", LOOP | {"times": 7_303}], "token_seconds": 0.0002},
            rules=[goes_on(WARNING, "It is done.\n<done>")],
            config=ModelConfig.model_validate(table),
            endpoint=endpoint,
            protocol="text",
            max_context_resets=0,
            budget=LoopBudget(max_iterations=1),
        )
        first, second = list(endpoint.calls)[:2]

    assert first.aborted
    assert first.completion_tokens < 1_000
    asked = second.request
    assert asked["messages"][-1] == {"role": "assistant", "content": f"I make the file.\n{WARNING}\n"}
    assert {name: asked[name] for name in fields} == fields
    assert run.books.of_type("call_finished")[1]["text"] == "I make the file.\nIt is done.\n<done>"


async def test_both_calls_of_a_restart_are_paid_for(drive):
    run = await drive(
        {"text": ["Well. ", LOOP]},
        rules=[goes_on(WARNING, "I stop.\n<done>")],
        config=GOES_ON,
        protocol="text",
        max_context_resets=0,
    )

    calls = [data["usage"] for data in run.books.of_type("call_finished")]
    assert run.books.usage.spend_micro_usd == sum(call["spend_micro_usd"] for call in calls)
    assert len(run.books.of_type("call_started")) == len(calls)


async def test_inside_a_string_of_json_the_reply_goes_on_as_json(drive):
    begun, rest = MAKE[:-10], MAKE[-10:]
    run = await drive(
        {"text": [begun, LOOP]},
        SUBMIT,
        rules=[goes_on(begun, rest)],
        config=GOES_ON,
        max_context_resets=0,
    )

    assert run.books.of_type("call_started")[1]["prefix"] == f"{begun.rstrip()} {WARNING} "
    assert json.loads(run.books.of_type("call_finished")[1]["text"])["action"] == "run"
    assert run.books.of_type("format_error") == []


async def test_white_space_between_the_parts_of_json_is_left_out_and_the_prompt_warns(drive):
    run = await drive(
        {"text": ['{"action":', {"repeat": "\n", "times": 2_000}]},
        rules=[goes_on('{"action":', '"report", "report": "no"}')],
        config=GOES_ON,
        max_context_resets=0,
    )

    assert run.stopped.stop is Stop.GAVE_UP
    assert run.books.of_type("call_started")[1]["prefix"] == '{"action":'
    assert run.prompts[1].endswith(f"[harness] {WARNING}")


async def test_a_reply_that_loops_again_after_its_restart_climbs_the_ladder_to_its_end(drive):
    run = await drive(
        {"text": ["Well. ", LOOP]},
        rules=[goes_on(WARNING, {"text": [{"repeat": "again and ", "times": 4_000}]})],
        config=GOES_ON,
        protocol="text",
        max_context_resets=0,
    )

    assert run.stopped.stop is Stop.LOOP_TEXT
    assert [data["kind"] for data in run.books.of_type("call_started")] == ["step", "restart"]
    assert run.books.of_type("call_finished")[1]["repetition"][-1]["action"] == "kill"


@pytest.mark.parametrize("table", [{"nudge_mode": "next_turn"}, {"capabilities": {"prefix": "none"}}])
async def test_elsewhere_the_nudge_waits_for_the_next_turn(drive, table):
    config = ModelConfig.model_validate(MODEL | {"capabilities": {"prefix": "last_message"}} | table)
    short = say("run", command="true", reasoning="truncated " * 400)
    run = await drive(short, SUBMIT, config=config, max_context_resets=0)

    assert run.books.of_type("call_finished")[0]["nudge_mode"] == "next_turn"
    assert "began to repeat itself" in run.prompts[1]


# -- the window (C14) ------------------------------------------------------------------------------------

NARROW = ModelConfig.model_validate(MODEL | {"context": 8_000})
OUTPUT = say("run", command="seq 1 1500; echo made > done.txt")
NUMBERS = "".join(f"{n * 7919 % 10_007} " for n in range(3_500))
"""No loop, and more than is left of the window."""


async def test_a_stream_in_a_full_window_is_closed_and_asked_for_again_in_one_with_room(drive):
    quick = [say("run", command=f"echo {n} > note{n}.txt") for n in range(3)]
    run = await drive(
        OUTPUT, *quick, {"text": NUMBERS}, config=NARROW, max_context_resets=0,
        rules=[{"when": {"contains": "Answer once more, and shorter"}, "turns": [SUBMIT]}],
    )  # fmt: skip

    cut = [data for data in run.books.of_type("call_finished") if data["finish"] == "cut"]
    again = [data for data in run.books.of_type("call_started") if data["kind"] == "restart"]
    assert len(cut) == len(again) == 1
    assert again[0]["cause"]["action"] == "compact"
    assert again[0]["cause"]["prompt_tokens"] + again[0]["cause"]["completion_tokens"] >= 0.95 * 8_000
    assert run.books.of_type("view_compacted")[-1]["share"] == 0.95
    assert run.stopped.stop is Stop.SUBMITTED


async def test_where_nothing_can_be_left_out_the_context_is_cleared(drive):
    run = await drive(
        *[say("plan", steps=["one"], reasoning="x " * 900)] * 4,
        {"text": NUMBERS},
        config=NARROW,
        fresh=[OUTPUT, SUBMIT],
    )

    reset = run.books.of_type("context_reset")
    assert [data["cause"] for data in reset] == ["limit:context"]
    assert reset[0]["evidence"]["action"] == "compact"
    assert run.stopped.stop is Stop.SUBMITTED


async def test_a_task_that_does_not_fit_into_the_window_is_not_begun_anew(drive):
    tools = ("shell", "read", "write", "edit", "list", "wait")  # a longer system prompt
    config = ModelConfig.model_validate(MODEL | {"context": 1_024})
    run = await drive(MAKE, config=config, tools=tools)

    assert run.stopped.stop is Stop.LIMIT_CONTEXT
    assert run.books.events == []


@pytest.mark.parametrize(("pieces", "full"), [(1_899, False), (1_900, False), (1_901, True)])
def test_the_stream_is_closed_at_95_percent_of_the_window(pieces, full):
    pressure = Pressure(prompt_tokens=7_600, window=10_000)
    cuts = [pressure.feed("ab") for _ in range(pieces)]
    assert (cuts[-1] is not None) is full
    assert not any(cuts[:-1])


def test_a_piece_of_many_tokens_counts_by_its_length():
    assert Pressure(7_600, 10_000).feed("x" * 4 * 1_900) is None
    assert Pressure(7_600, 10_000).feed("x" * 4 * 1_901) is not None


def test_the_smallest_useful_reply_may_always_come():
    pressure = Pressure(10_000, 10_000)
    assert not any(pressure.feed("a") for _ in range(256))
    assert pressure.feed("a").evidence["window"] == 10_000


def test_the_providers_own_count_of_the_last_prompt_tells_about_the_next():
    window = Window()
    assert window.expected(1_000) == 750
    window.started({"prompt_estimate": 1_000})
    window.finished({"usage": {"calls": 1, "prompt_tokens": 1_200}})
    assert window.expected(2_000) == 2_400
    window.finished({"usage": {"calls": 1, "estimated_calls": 1, "prompt_tokens": 9}})
    assert window.expected(2_000) == 2_400
