"""A run that asks a person: answered where it stands, or parked and taken up again with the answer."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.decisions import Allow, Ask, Decisions
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.question import LATE, NOBODY, Answer, Asked, AskRequest
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import AwaitingHuman
from zubble_queue.testing import MemoryBooks
from zubble_queue.testing import structured_reply as say
from zubble_worker.questions import record_answer
from zubble_worker.resuming import acted_on

PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made > done.txt", plan_step_id=1)
ASK = say("ask", question="Which colour?")
SUBMIT = say("submit", report="done.txt is there")
GIVE_UP = say("report", report="cannot be done")
LOOK = say("run", command="ls")
ATTENDED = AskRequest(human=True, caps=True)


class Person:
    """Gives its answers in turn; away when there is none left."""

    def __init__(self, *answers):
        self.answers, self.questions = list(answers), []

    async def answer(self, question):
        self.questions.append(question)
        if not self.answers:
            raise AwaitingHuman(question.text)
        return asked(question, self.answers.pop(0))


def asked(question, answer):
    return Asked(question=question, asked_at=1.0, answer_by=9.0, answered_at=3.5, answer=answer)


class Careful(Decisions):
    """Asks before whatever writes, or whatever point it is told."""

    def __init__(self, point="before_dispatch"):
        self.point = point

    def before_step(self, view):
        return Ask("another step?") if self.point == "before_step" else Allow()

    def before_dispatch(self, view, tool, command):
        return Ask("May it write?") if self.point == "before_dispatch" and ">" in command else Allow()

    def wants_to_stop(self, view, action, report):
        return Ask("Is that all?") if self.point == "wants_to_stop" else Allow()


async def taken_up(drive, person, answer, *turns, **fields):
    """The run of a second attempt, after the first one was parked for a question that then was answered."""
    books = MemoryBooks(LoopBudget())
    away = Person()
    with pytest.raises(AwaitingHuman):
        await drive(*turns, human=away, books=books, ask=ATTENDED, **fields)
    past = acted_on(books.events)
    events = []

    async def record(type_, **data):
        events.append(Event(seq=past[-1].seq + 1, time=0, attempt=2, type=type_, data=data))

    await record_answer(asked(away.questions[-1], answer), 1, record)
    return await drive(*turns, human=person, past=[*past, *events], ask=ATTENDED, **fields)


async def test_an_unattended_run_is_answered_at_once_and_asks_nobody(drive):
    person = Person(Answer(text="blue"))
    run = await drive(PLAN, ASK, MAKE, SUBMIT, human=person)

    assert NOBODY in run.prompts[2]
    assert (person.questions, run.books.of_type("asked")) == ([], [])


async def test_an_unattended_run_hears_the_default_answer_of_its_task(drive):
    run = await drive(PLAN, ASK, MAKE, SUBMIT, ask=AskRequest(default_answer="Take red."))

    assert "Take red." in run.prompts[2]


async def test_a_person_who_is_there_is_asked_and_quoted(drive):
    person = Person(Answer(text="blue"))
    run = await drive(PLAN, ASK, MAKE, SUBMIT, human=person, ask=ATTENDED)

    assert run.stopped.stop is Stop.SUBMITTED
    assert "A person answers: blue" in run.prompts[2]
    (question,) = person.questions
    assert (question.kind, question.cause, question.text) == ("question", "agent", "Which colour?")
    assert question.unanswered == Answer(text=NOBODY, by="deadline")
    assert run.transcript.seconds["awaiting_human"] == 2.5


async def test_a_step_of_the_plan_that_was_there_to_ask_is_done_once_a_person_answered(drive):
    plan = say("plan", steps=["ask", "make the file"])
    asks = say("ask", question="Which colour?", plan_step_id=1)
    make = say("run", command="echo made > done.txt", plan_step_id=2)
    person = Person(Answer(text="blue"))
    run = await drive(plan, asks, make, SUBMIT, human=person, ask=ATTENDED)

    assert run.books.of_type("diverged") == []
    assert "1. [DONE (a person answered)] ask" in run.prompts[3]


async def test_the_same_question_again_is_a_new_question(drive):
    person = Person(Answer(text="blue"), Answer(text="red"))
    run = await drive(PLAN, ASK, ASK, MAKE, SUBMIT, human=person, ask=ATTENDED)

    assert len(person.questions) == 2
    assert "A person answers: red" in run.prompts[3]


async def test_a_question_with_what_no_text_may_hold_is_asked_all_the_same(drive):
    person = Person(Answer(text="x"))
    half = '{"action": "ask", "question": "which \\ud800?"}'
    run = await drive(PLAN, half, GIVE_UP, human=person, ask=ATTENDED)

    assert person.questions[0].text == "which ??"
    assert run.stopped.stop is Stop.GAVE_UP


async def test_a_parked_question_is_answered_in_the_next_attempt_without_another_call(drive):
    run = await taken_up(drive, Person(), Answer(text="blue"), PLAN, ASK, MAKE, SUBMIT)

    assert run.stopped.stop is Stop.SUBMITTED
    assert [event.type for event in run.books.events[:2]] == ["observation", "call_started"]
    assert "A person answers: blue" in run.prompts[0]
    assert run.transcript.step == 4


async def test_what_a_policy_asks_is_run_when_approved_and_not_asked_twice(drive):
    person = Person(Answer.approved())
    run = await drive(PLAN, MAKE, SUBMIT, human=person, decisions=Careful(), ask=ATTENDED)

    assert (run.stopped.stop, "done.txt" in run.files) == (Stop.SUBMITTED, True)
    (question,) = person.questions
    assert (question.kind, question.subject) == ("approval", "shell")
    assert question.text == "May it write?\nshell: echo made > done.txt"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer.denied("not today"), "a person denied it: not today"),
        (Answer.denied(), "a person denied it: no reason given"),
        (Answer(text=LATE, allowed=False, by="deadline"), LATE),
    ],
)
async def test_what_is_denied_is_not_run_and_the_model_hears_why(drive, answer, reason):
    run = await drive(PLAN, MAKE, GIVE_UP, human=Person(answer), decisions=Careful(), ask=ATTENDED)

    assert "done.txt" not in run.files
    assert f"This command was not run: {reason}" in run.prompts[2]


async def test_a_command_that_is_too_long_to_be_shown_whole_is_not_approved(drive):
    hidden = say("run", command=f"echo {' ' * 8_000} > done.txt", plan_step_id=1)
    person = Person(Answer.approved())
    run = await drive(PLAN, hidden, GIVE_UP, human=person, decisions=Careful(), ask=ATTENDED)

    assert person.questions == []
    assert "8,000 characters that a person is shown" in run.prompts[2]
    assert "done.txt" not in run.files


@pytest.mark.parametrize("answer", [Answer.approved(), Answer.denied("no")])
async def test_a_command_parked_for_approval_is_run_or_not_by_the_next_attempt(drive, answer):
    run = await taken_up(
        drive, Person(), answer, PLAN, MAKE, GIVE_UP, decisions=Careful(), max_context_resets=0
    )

    assert ("done.txt" in run.files) == bool(answer.allowed)
    first = "dispatch" if answer.allowed else "denied"
    assert run.books.events[0].type == first


@pytest.mark.parametrize("point", ["before_step", "wants_to_stop"])
async def test_a_policy_may_ask_at_the_other_points_as_well(drive, point):
    run = await drive(
        *(PLAN, MAKE, SUBMIT),
        human=Person(*[Answer.approved()] * 3),
        decisions=Careful(point),
        ask=ATTENDED,
    )

    assert run.stopped.stop is Stop.SUBMITTED


async def test_a_step_that_a_person_denies_is_not_made(drive):
    run = await drive(
        PLAN, human=Person(Answer.denied("stop")), decisions=Careful("before_step"), ask=ATTENDED
    )

    assert (run.stopped.stop, run.stopped.reason) == (Stop.BLOCKED, "a person denied it: stop")
    assert run.books.usage.calls == 0


async def test_an_end_parked_for_approval_is_checked_by_the_next_attempt(drive):
    person = Person(*[Answer.approved()] * 2)
    run = await taken_up(
        *(drive, person, Answer.approved(), PLAN, SUBMIT, GIVE_UP), decisions=Careful("wants_to_stop")
    )

    assert run.books.events[0].type == "verify_finished"


async def test_a_cap_asks_where_somebody_sits_at_the_run_and_is_extended_by_as_much(drive):
    person = Person(Answer.approved(), Answer.denied("enough"))
    run = await drive(PLAN, *[LOOK] * 9, human=person, ask=ATTENDED, max_steps=1)

    assert run.stopped.stop is Stop.LIMIT_MAX_STEPS
    assert run.books.usage.calls == 2
    assert [question.text for question in person.questions] == [
        "max_steps=1 exceeded. Go on for as much again?",
        "max_steps=2 exceeded. Go on for as much again?",
    ]


async def test_a_cap_of_a_queued_task_asks_nobody(drive):
    person = Person()
    run = await drive(PLAN, MAKE, human=person, ask=AskRequest(human=True), max_steps=1)

    assert (run.stopped.stop, person.questions) == (Stop.LIMIT_MAX_STEPS, [])


async def test_a_cap_parked_and_extended_is_extended_in_the_next_attempt(drive):
    run = await taken_up(drive, Person(), Answer.approved(), PLAN, LOOK, MAKE, SUBMIT, max_steps=2)

    assert run.stopped.stop is Stop.SUBMITTED
    assert run.transcript.inquiry.extended == {"max_steps": 1}


async def test_a_guard_that_a_person_clears_counts_from_nothing_and_the_run_goes_on(drive):
    person = Person(Answer.approved())
    run = await drive(*[LOOK] * 3, GIVE_UP, human=person, ask=ATTENDED, guards=("tool-cycle",))

    assert run.stopped.stop is Stop.GAVE_UP
    assert (person.questions[0].cause, person.questions[0].subject) == ("guard", "tool-cycle")
    assert run.transcript.inquiry.met is None


async def test_a_guard_that_nobody_clears_blocks_the_run_with_its_evidence(drive):
    person = Person(Answer.denied())
    run = await drive(LOOK, human=person, ask=ATTENDED, guards=("tool-cycle",))

    assert run.stopped.stop is Stop.BLOCKED
    assert run.stopped.evidence["call"] == "shell: ls"


@pytest.mark.parametrize(
    ("answer", "stop"), [(Answer.approved(), Stop.GAVE_UP), (Answer.denied(), Stop.BLOCKED)]
)
async def test_a_guard_that_was_met_is_cleared_or_not_in_the_next_attempt(drive, answer, stop):
    run = await taken_up(drive, Person(), answer, *[LOOK] * 3, GIVE_UP, guards=("tool-cycle",))

    assert run.stopped.stop is stop
