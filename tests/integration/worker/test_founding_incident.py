"""79,000 characters, 7,303 times one word: cut, cleared from the context, and the task ends verified."""

from __future__ import annotations

import json

from zubble_queue.contracts.ending import Stop
from zubble_queue.testing import structured_reply as say

INCIDENT = {
    "text": ["I will now read the file. ", {"repeat": "truncated ", "times": 7_303}],
    "token_seconds": 0.0002,
}
RULES = {
    "Is it stuck?": ["false"],
    "context was cleared": [say("run", command="touch done.txt"), say("submit", report="done")],
    "This is task incident.": [say("plan", steps=["make the file"]), INCIDENT],
}


async def test_the_founding_incident_is_cut_and_the_task_goes_on_and_ends_verified(install):
    zubble = await install(RULES, contains="{}")
    zubble.endpoint._keep_requests = True
    await zubble.submit(zubble.task("incident"))
    zubble.start_worker()

    view = await zubble.sealed("incident")

    assert (view.ending.stop, view.outcome) == (Stop.SUBMITTED, "verified")
    lines = zubble.artifacts.get(view.ending.artifacts["trajectory"]).splitlines()
    events = [json.loads(line) for line in lines]
    (cut,) = (event["data"] for event in events if event["data"].get("finish") == "cut")
    reached = {fired["threshold"]: fired["token"] for fired in cut["repetition"]}
    assert reached[50] <= 260
    assert reached[3_000] <= 3_300
    (reset,) = (event["data"] for event in events if event["type"] == "context_reset")
    assert (reset["cause"], reset["evidence"]["action"]) == ("loop:text", "kill")
    opinions = [event["data"] for event in events if event["type"] == "opinion"]
    assert [opinion["purpose"] for opinion in opinions] == ["self_check", "gate"]
    paid = [event["data"]["usage"] for event in events if event["type"] in {"call_finished", "opinion"}]
    assert sum(usage["calls"] for usage in paid) == view.usage.calls
    assert sum(usage["spend_micro_usd"] for usage in paid) == view.usage.spend_micro_usd

    prompts = [json.dumps(call.request) for call in zubble.endpoint.calls]
    assert [prompt for prompt in prompts if "truncated" in prompt and "Is it stuck?" not in prompt] == []
    assert any("context was cleared" in prompt for prompt in prompts)


async def test_a_reply_that_a_fresh_call_finds_stuck_is_cut_at_the_gate(install):
    zubble = await install({**RULES, "Is it stuck?": ['{"stuck": true}']}, contains="{}")
    await zubble.submit(zubble.task("incident"))
    zubble.start_worker()

    view = await zubble.sealed("incident")

    assert view.outcome == "verified"
    assert view.ending.tokens_saved > 0
    assert '"action":"gate"' in zubble.artifacts.get(view.ending.artifacts["trajectory"]).decode()
