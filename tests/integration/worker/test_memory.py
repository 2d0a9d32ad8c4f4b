"""A second batch of the same task type knows what the first one tried, if it asked to."""

from __future__ import annotations

from zubble_queue.contracts.event import Event
from zubble_queue.testing import structured_reply as say

PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made > done.txt  # the trick", plan_step_id=1)
SUBMIT = say("submit", report="it is there")
HEADING = "MEMORY OF OTHER RUNS"


async def prompts_of(zubble, view):
    """The first prompt's memory, as the record has it."""
    lines = zubble.artifacts.get(view.ending.artifacts["trajectory"]).splitlines()
    events = [Event.model_validate_json(line) for line in lines]
    return [event.data for event in events if event.type == "memory_read"]


async def test_the_second_batch_reads_what_the_first_wrote(install):
    zubble = await install({"first": [PLAN, MAKE, SUBMIT], "second": [PLAN, MAKE, SUBMIT]})
    await zubble.submit(zubble.task("first", task_type="files", memory="write"))
    zubble.start_worker()
    first = await zubble.sealed("first")
    calls = len(zubble.endpoint.calls)

    await zubble.submit(zubble.task("second", task_type="files", memory="both"))
    second = await zubble.sealed("second")

    [left, _] = await zubble.store.memory("files")
    assert (left.source_id, left.outcome, left.model) == ("first", "verified", "mock")
    assert first.ending.memory.read == ()
    assert second.ending.memory.read == (left.entry_id,)
    assert await prompts_of(zubble, first) == []
    [read] = await prompts_of(zubble, second)
    assert "the trick" in str(read["text"])
    before, after = zubble.endpoint.calls[0], zubble.endpoint.calls[calls]
    assert after.prompt_tokens > before.prompt_tokens + 50, "the model was shown it"


async def test_without_write_nothing_is_remembered(install):
    zubble = await install({"first": [PLAN, MAKE, SUBMIT], "second": [PLAN, MAKE, SUBMIT]})
    await zubble.submit(zubble.task("first", memory="off"), zubble.task("second", memory="read"))
    zubble.start_worker()

    for name in ("first", "second"):
        assert (await zubble.sealed(name)).outcome == "verified"

    assert await zubble.store.memories() == []
