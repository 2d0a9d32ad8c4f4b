"""The worker's settings decide what a task may reach, and the record says what it asked for."""

from __future__ import annotations

from zubble_queue.contracts.event import Event
from zubble_queue.testing import structured_reply as say

PLAN = say("plan", steps=["look", "submit"])
LOOK = say(
    "run",
    command="python3 -c \"import urllib.request as u; u.urlopen('http://evil.example/')\"; echo x > done.txt",
    plan_step_id=1,
)
SUBMIT = say("submit", report="it is there")
LIST = {"network": "allowlist", "allowed_hosts": ("allowed.example",)}


async def test_a_network_that_the_worker_does_not_allow_makes_the_task_invalid(install):
    zubble = await install({"open": [PLAN], "check": [PLAN]})
    await zubble.submit(
        zubble.task("open", sandbox={"network": "open"}), zubble.task("check", verify=LIST, preflight="off")
    )
    zubble.start_worker(ZUBBLE_WORKER__NETWORKS="none")

    opened, check = await zubble.sealed("open"), await zubble.sealed("check")

    assert [view.outcome for view in (opened, check)] == ["invalid", "invalid"]
    assert opened.ending.reason == "sandbox.network 'open' is not allowed on this worker (allowed: none)"
    assert check.ending.reason == "verify.network 'allowlist' is not allowed on this worker (allowed: none)"
    assert not zubble.endpoint.calls, "nothing was asked of the model"


async def test_the_record_says_what_commands_asked_for_and_what_was_granted(install):
    zubble = await install({"looks": [PLAN, LOOK, SUBMIT]})
    await zubble.submit(zubble.task("looks", sandbox=LIST))
    zubble.start_worker(ZUBBLE_WORKER__NETWORKS="allowlist")

    view = await zubble.sealed("looks")

    assert view.outcome == "verified"
    assert view.ending.isolation == "bubblewrap, network allowlist"
    lines = zubble.artifacts.get(view.ending.artifacts["trajectory"]).splitlines()
    events = {event.type: event.data for event in map(Event.model_validate_json, lines)}
    (use,) = events["hosts_asked_for"]["uses"]
    assert (use["host"], use["allowed"], use["denied"], use["reasons"]) == ("evil.example", 0, 1, ["host"])
    assert "403" in str(events["command_finished"]), "the model saw why"
    assert events["verify_finished"]["host_uses"] == []
    assert "egress_denied" in zubble.log()
