"""A task that waits for a person: with or without a worker, until an answer, deadline or operator comes."""

import pytest

from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.question import Answer, Question
from zubble_queue.contracts.record import Checkpoint, TaskState
from zubble_queue.errors import BadInput, LeaseLost, UnknownName

DAY = 86_400.0


def question(id_="q1", kind="question", **fields):
    unanswered = Answer(text="decide", by="deadline")
    if kind == "approval":
        unanswered = Answer(text="late", allowed=False, by="deadline")
    text = 'Which "port" \U0001f600 / \\ ?'
    return Question(
        **{
            "question_id": id_,
            "kind": kind,
            "cause": "agent",
            "text": text,
            "unanswered": unanswered,
            **fields,
        }
    )


async def parked(world, asks=None, deadline=DAY, **fields):
    """The lease of a task that asked and was given back."""
    lease = await world.running(**fields)
    await world.store.ask(lease, asks or question(), deadline)
    await world.store.release(lease, cause="awaiting_human")
    return lease


async def test_a_task_that_asks_waits_without_worker_and_slot(world):
    lease = await parked(world)

    task = await world.store.task(lease.task_id)
    assert (task.state, task.lease_until, task.abnormal_ends) == (TaskState.AWAITING_HUMAN, None, 0)
    assert task.asked.question == question()
    assert (task.asked.answer, round(task.asked.answer_by - task.asked.asked_at)) == (None, 86_400)
    assert (await world.store.batch("b")).states == {"awaiting_human": 1}
    assert await world.store.announce(5) == []
    assert await world.admin.hgetall(world.keys.busy) == {}
    assert not (await world.store.renew(lease)).held


async def test_the_answer_goes_to_the_next_attempt_and_no_attempt_is_charged(world):
    lease = await parked(world)
    await world.store.answer(lease.task_id, Answer(text="8080 ✓"))

    assert (await world.store.task(lease.task_id)).state is TaskState.QUEUED
    claim = await world.claim(worker_id="other")

    assert claim.previous_end == "released"
    assert claim.asked.question == question()
    assert claim.asked.answer == Answer(text="8080 ✓")
    assert claim.asked.waited_seconds > 0
    assert (await world.store.task(lease.task_id)).abnormal_ends == 0
    assert (await world.store.batch("b")).requeues == 0


async def test_waiting_is_not_charged_to_the_wall_clock(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)
    before = await world.field(lease.task_id, "wallclock")
    await world.admin.hset(world.keys.task(lease.task_id), "mark", 1)
    await world.store.renew(lease)
    await world.admin.hset(world.keys.task(lease.task_id), "mark", 1)
    await world.store.release(lease, cause="awaiting_human")

    assert await world.field(lease.task_id, "wallclock") == before
    await world.store.answer(lease.task_id, Answer(text="go"))
    assert (await world.claim()).wallclock_used_seconds == int(before) / 1_000_000


async def test_a_worker_that_waits_keeps_its_lease_and_goes_on_with_the_answer(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)

    assert (await world.store.renew(lease)).held
    assert (await world.store.task(lease.task_id)).state is TaskState.AWAITING_HUMAN
    await world.store.answer(lease.task_id, Answer(text="8080"))

    assert (await world.store.task(lease.task_id)).state is TaskState.RUNNING
    assert (await world.store.asked(lease.task_id)).answer.text == "8080"
    await world.store.append(lease, [world.event(2)])
    await world.store.seal(lease, world.passed)
    assert (await world.store.batch("b")).states == {"sealed": 1}


async def test_asking_twice_with_one_id_asks_once(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)
    first = await world.store.asked(lease.task_id)
    await world.store.ask(lease, question(), DAY)
    await world.store.answer(lease.task_id, Answer(text="8080"))
    await world.store.ask(lease, question(), DAY)

    assert (await world.store.asked(lease.task_id)).asked_at == first.asked_at
    assert (await world.store.task(lease.task_id)).state is TaskState.RUNNING


async def test_a_second_question_replaces_the_first_and_its_answer(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)
    await world.store.answer(lease.task_id, Answer(text="8080"))
    await world.store.ask(lease, question("q2", kind="approval"), DAY)

    asked = await world.store.asked(lease.task_id)
    assert (asked.question.question_id, asked.answer) == ("q2", None)


async def test_who_lost_the_lease_cannot_ask(world):
    lease = await world.running()
    await world.lose(lease)

    with pytest.raises(LeaseLost):
        await world.store.ask(lease, question(), DAY)


async def test_a_worker_that_dies_while_it_waits_costs_the_task_nothing(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)
    await world.lose(lease)

    task = await world.store.task(lease.task_id)
    assert (task.state, task.abnormal_ends, task.lease_until) == (TaskState.AWAITING_HUMAN, 0, None)
    assert await world.admin.hgetall(world.keys.busy) == {}
    await world.store.answer(lease.task_id, Answer(text="go"))
    assert (await world.claim()).previous_end == "lost"


async def test_an_answer_for_a_worker_that_no_longer_renews_goes_to_the_next_attempt(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)
    await world.expire(lease)
    await world.store.answer(lease.task_id, Answer(text="go"))

    assert not (await world.store.renew(lease)).held
    assert (await world.claim()).asked.answer.text == "go"
    assert (await world.store.task(lease.task_id)).abnormal_ends == 0


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("question", Answer(text="decide", by="deadline")),
        ("approval", Answer(text="late", allowed=False, by="deadline")),
    ],
)
async def test_at_the_deadline_the_answer_is_the_one_for_that_case(world, kind, answer):
    lease = await parked(world, question(kind=kind), deadline=0)

    assert await world.store.lapse() == 1
    assert await world.store.lapse() == 0
    assert (await world.claim()).asked.answer == answer
    assert await world.admin.zcard(world.keys.questions) == 0
    assert (await world.store.task(lease.task_id)).state is TaskState.RUNNING


async def test_before_the_deadline_nothing_lapses(world):
    await parked(world)

    assert await world.store.lapse() == 0
    assert (await world.store.batch("b")).states == {"awaiting_human": 1}


async def test_an_answer_is_given_once(world):
    lease = await parked(world)
    await world.store.answer(lease.task_id, Answer(text="8080"))

    with pytest.raises(BadInput, match="was answered before"):
        await world.store.answer(lease.task_id, Answer(text="9090"))
    assert (await world.claim()).asked.answer.text == "8080"


async def test_what_cannot_be_answered_is_told_in_one_sentence(world):
    lease = await world.running()
    with pytest.raises(BadInput, match="does not wait for a person"):
        await world.store.answer(lease.task_id, Answer(text="?"))
    await world.store.ask(lease, question(), DAY)
    with pytest.raises(BadInput, match=f"asks a question: zubble task answer {lease.task_id} TEXT"):
        await world.store.answer(lease.task_id, Answer.approved())
    with pytest.raises(BadInput, match="does not wait for a person"):
        await world.store.answer(lease.task_id, Answer(text="?"), question_id="another")
    await world.store.seal(lease, world.passed)
    with pytest.raises(BadInput, match="is sealed; it asks nothing"):
        await world.store.answer(lease.task_id, Answer(text="?"))
    with pytest.raises(UnknownName):
        await world.store.answer("1-none-00000000", Answer(text="?"))


async def test_an_approval_is_not_answered_with_words(world):
    lease = await parked(world, question(kind="approval"))

    with pytest.raises(BadInput, match=f"zubble task approve {lease.task_id}, or zubble task deny"):
        await world.store.answer(lease.task_id, Answer(text="yes"))
    await world.store.answer(lease.task_id, Answer.approved())
    assert (await world.claim()).asked.answer.allowed


async def test_a_waiting_task_without_a_worker_is_cancelled_at_once(world):
    lease = await parked(world)

    assert await world.store.cancel_task(lease.task_id)

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"
    assert (await world.store.batch("b")).states == {"sealed": 1}
    assert await world.admin.zcard(world.keys.questions) == 0


async def test_a_waiting_worker_is_told_to_cancel_and_seals(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)
    await world.store.cancel_batch("b")

    assert (await world.store.task(lease.task_id)).state is TaskState.AWAITING_HUMAN
    assert (await world.store.renew(lease)).cancel
    await world.store.seal(lease, world.passed)
    assert (await world.store.batch("b")).states == {"sealed": 1}
    assert await world.admin.hgetall(world.keys.busy) == {}


async def test_a_cancelled_batch_whose_waiting_worker_died_is_sealed(world):
    lease = await world.running()
    await world.store.ask(lease, question(), DAY)
    await world.store.cancel_batch("b")
    await world.lose(lease)

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"
    assert await world.admin.hgetall(world.keys.busy) == {}


async def test_an_answered_task_of_a_paused_batch_waits_until_it_is_resumed(world):
    lease = await parked(world)
    await world.store.pause_batch("b")
    await world.store.answer(lease.task_id, Answer(text="go"))

    assert await world.store.announce(5) == []
    await world.store.resume_batch("b")
    assert (await world.claim()).asked.answer.text == "go"


async def test_a_waiting_task_is_neither_retried_nor_removed(world):
    lease = await parked(world)

    with pytest.raises(BadInput, match="is not sealed"):
        await world.store.retry_tasks("b", [lease.task_id])
    with pytest.raises(BadInput, match="cancel it first"):
        await world.store.remove_batch("b")


async def test_a_new_round_knows_nothing_of_an_old_question(world):
    lease = await parked(world)
    await world.store.cancel_task(lease.task_id)
    await world.store.retry_tasks("b", [lease.task_id])

    claim = await world.claim()
    assert (claim.asked, (await world.store.task(lease.task_id)).asked) == (None, None)


@pytest.mark.parametrize("how", ["postpone", "try_again"])
async def test_a_waiting_attempt_that_ends_otherwise_takes_its_question_back(world, how):
    await world.submit("a")
    await world.store.tune_batch("b", max_retries=1)
    lease = (await world.claim()).lease
    await world.store.ask(lease, question(), DAY)
    if how == "postpone":
        await world.store.postpone(lease, cause="no endpoint")
    else:
        await world.store.try_again(lease, world.passed, Checkpoint(seq=1))

    assert (await world.store.batch("b")).states == {"queued": 1}
    assert await world.admin.zcard(world.keys.questions) == 0


async def blocked(world):
    """The id of a task that ended as blocked, and what it had cost."""
    lease = await world.running()
    await world.store.reserve(lease, "c", tokens=9, micro_usd=9)
    await world.store.settle(lease, "c", world.usage(prompt_tokens=5, spend_micro_usd=7))
    await world.store.seal(lease, Ending(stop=Stop.BLOCKED, verdict=Verdict.FAILED, reason="a guard was met"))
    return lease.task_id


def clearance():
    return question("q9", kind="approval", cause="guard", subject="churn", unanswered=Answer.approved())


async def test_a_blocked_task_that_is_cleared_goes_on_in_a_new_round_within_its_budget(world):
    task_id = await blocked(world)
    await world.store.clear(task_id, Checkpoint(seq=1), clearance())

    batch = await world.store.batch("b")
    assert (batch.states, batch.outcomes, batch.usage.spend_micro_usd) == ({"queued": 1}, {}, 7)
    claim = await world.claim()
    assert (claim.lease.round, claim.lease.epoch, claim.usage.spend_micro_usd) == (2, 2, 7)
    assert (claim.checkpoint, claim.previous_end) == (Checkpoint(seq=1), "released")
    assert claim.asked.answer.allowed
    assert claim.asked.question.subject == "churn"
    await world.store.seal(claim.lease, world.passed)
    assert (await world.store.batch("b")).outcomes == {"verified": 1}
    assert (await world.store.batch("b")).usage.spend_micro_usd == 7
    [past] = await world.store.rounds(task_id)
    assert past.ending.outcome == "blocked"


async def test_only_what_ended_as_blocked_is_cleared_and_once(world):
    task_id = await blocked(world)
    await world.store.clear(task_id, Checkpoint(seq=1), clearance())

    with pytest.raises(BadInput, match="did not end as blocked"):
        await world.store.clear(task_id, Checkpoint(seq=1), clearance())
    with pytest.raises(UnknownName):
        await world.store.clear("1-none-00000000", Checkpoint(seq=1), clearance())


async def test_the_census_finds_a_question_that_no_index_has(world):
    lease = await parked(world, deadline=0)
    await world.admin.delete(world.keys.questions)

    assert await world.store.lapse() == 0
    census = await world.store.census()
    assert (census.orphans, census.miscounted) == ((), ())
    assert await world.store.lapse() == 1
    assert (await world.store.task(lease.task_id)).state is TaskState.QUEUED


async def test_a_question_without_a_record_is_swept(world):
    await world.admin.zadd(world.keys.questions, {"1-gone-00000000": 1})

    assert (await world.store.census()).orphans == ("1-gone-00000000",)
