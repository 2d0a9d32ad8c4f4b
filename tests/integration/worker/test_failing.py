"""What real workers make of an endpoint that fails: tried again, sealed at once, or given another attempt."""

from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Parcel, Submission
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.testing import structured_reply as say

from .conftest import BATCH, wait_until

RUN = say("run", command="touch done.txt", reasoning="as asked")
SUBMIT = say("submit", report="it is done")
GIVE_UP = say("report", report="no idea")


def failing(status, **fault):
    return {"text": RUN, "fault": {"kind": "status", "status": status, **fault}}


async def test_a_task_whose_endpoint_fails_for_a_while_is_tried_again_and_charged_with_nothing(install):
    zubble = await install({"shaky": [failing(500)]}, [RUN, SUBMIT])
    zubble.config["models"]["mock"]["retries"] = 0
    await zubble.submit(zubble.task("shaky"))
    zubble.start_worker()

    view = await zubble.sealed("shaky")

    refused = [call for call in zubble.endpoint.calls if call.status == 500]
    assert len(refused) == 1
    assert view.outcome == "verified"
    assert (view.attempt, view.abnormal_ends) == (2, 0)
    assert view.usage.calls == 2


async def test_a_refused_key_is_sealed_infra_at_once(install):
    zubble = await install({"locked": [failing(401)]})
    await zubble.submit(zubble.task("locked"))
    zubble.start_worker()

    view = await zubble.sealed("locked")

    assert (view.outcome, view.attempt) == ("infra", 1)


async def test_a_retry_begins_afresh_and_is_told_what_was_tried(install):
    zubble = await install({"hard": [say("run", command="ls", reasoning="look"), GIVE_UP]}, [RUN, SUBMIT])
    info = BatchInfo(name=BATCH, model="mock", tuning=Tuning(max_retries=1))
    await zubble.dispatcher.submit(Submission(info, [Parcel(zubble.task("hard"), {})]))
    zubble.start_worker()

    view = await zubble.sealed("hard")

    assert (view.outcome, view.attempt, view.round) == ("verified", 2, 1)
    [past] = view.ending.evidence["past"]
    assert (past["outcome"], past["iterations_used"]) == ("failed", 2)


async def test_a_task_at_its_batchs_ceiling_is_handed_over_and_goes_on_when_it_is_raised(install):
    zubble = await install({"dear": ["never"]}, [RUN, SUBMIT])
    info = BatchInfo(name=BATCH, model="mock", max_spend_usd=0.000001)
    await zubble.dispatcher.submit(Submission(info, [Parcel(zubble.task("dear"), {})]))
    zubble.start_worker()

    async def is_paused():
        batch = await zubble.store.batch(BATCH)
        return batch.ceiling_reached == "batch_spend" and batch.states.get("queued") == 1

    await wait_until(is_paused, "the batch is paused at its ceiling")
    assert not zubble.endpoint.calls

    await zubble.store.set_ceiling("batch", BATCH, 10_000_000)

    view = await zubble.sealed("dear")
    assert (view.outcome, view.abnormal_ends) == ("verified", 0)
