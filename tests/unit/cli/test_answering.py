"""What a person is asked at the terminal, and how what is typed is understood."""

from __future__ import annotations

import os
import time

import pytest

from zubble_queue.cli import answering, main, terminal, tracing, views
from zubble_queue.cli.defaults import asking
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.question import Answer, Asked, AskRequest, Question
from zubble_queue.contracts.record import TaskState
from zubble_queue.errors import BadInput
from zubble_queue.trajectories.run import fold

UNANSWERED = Answer(text="decide", by="deadline")


def question(kind="question", **fields):
    given = {"cause": "agent", "text": "Which\x1b port?\nOf two.", "unanswered": UNANSWERED, **fields}
    return Question(question_id="q", kind=kind, **given)


@pytest.fixture
def waiting(task_view):
    """A task that waits for a person."""

    def waiting(**fields):
        asked = Asked(question=question(**fields), asked_at=1.0, answer_by=2.0)
        return task_view(state=TaskState.AWAITING_HUMAN, sealed_at=None, asked=asked)

    return waiting


def test_a_task_that_waits_shows_its_question_harmlessly_and_how_to_answer(waiting):
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(2.0))

    assert list(answering.lines(waiting())) == [
        f"  its agent asks, until {until}:",
        r"    Which\x1b port?",
        "    Of two.",
        "  answer with: zubble task answer 1-a-00000000 TEXT",
    ]
    said = list(answering.lines(waiting(kind="approval", cause="policy", subject="shell")))
    assert said[0].startswith("  its policy asks about shell, until")
    assert said[-1].endswith("zubble task approve 1-a-00000000, or zubble task deny 1-a-00000000")


def test_a_task_that_waits_no_longer_shows_no_question(waiting):
    assert list(answering.lines(waiting().model_copy(update={"state": TaskState.RUNNING}))) == []


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"text": "80\x1b80", "allowed": None, "by": "human"}, r"  answered by human after 2.0 s: 80\x1b80"),
        ({"text": "", "allowed": True, "by": "human"}, "  allowed by human after 2.0 s"),
        ({"text": "late", "allowed": False, "by": "deadline"}, "  denied by deadline after 2.0 s: late"),
        (None, "  not answered"),
    ],
)
def test_a_trace_tells_what_was_asked_and_what_came_of_it(waiting, answer, shown):
    happened = [
        ("call_started", {"step": 1}),
        ("asked", {"step": 1, "question_id": "q", "text": "Which port?"}),
        ("call_started", {"step": 2}),
    ]
    if answer:
        happened.append(("answered", {"question_id": "q", "seconds": 2.0, **answer}))
    events = [
        Event(seq=n, time=0.0, attempt=1, type=type_, data=data) for n, (type_, data) in enumerate(happened)
    ]

    lines = list(tracing.lines(waiting(), fold(events), whole=False))

    assert lines[lines.index("  a person is asked: Which port?") + 1] == shown


def test_programs_see_the_question_its_deadline_and_its_answer(waiting, task_view):
    shown = views.task_values(waiting())["question"]

    assert (shown["kind"], shown["unanswered"], shown["answer"], shown["answer_by"]) == (
        *("question", "decide", None),
        2.0,
    )
    assert views.task_values(task_view())["question"] is None


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", Answer.approved()),
        ("Yes", Answer.approved()),
        ("n", Answer.denied()),
        ("no, never push", Answer.denied("never push")),
        ("yesterday", None),
        ("", None),
    ],
)
def test_an_approval_is_a_yes_or_a_no_with_its_reason(line, answer):
    assert terminal.understood(question("approval"), line) == answer


def test_a_question_takes_any_text_but_none():
    assert terminal.understood(question(), "no") == Answer(text="no")
    assert terminal.understood(question(), "") is None


@pytest.mark.parametrize("written", [b"one\ntwo", b"one\ntwo\n"])
async def test_lines_come_one_by_one_and_the_last_one_needs_no_end(written):
    reading, writing = os.pipe()
    os.write(writing, written)
    os.close(writing)
    lines = terminal.Lines(reading)

    assert [await lines.next() for _ in range(4)] == ["one", "two", None, None]
    os.close(reading)


async def test_lines_of_a_file_are_read_as_well(tmp_path):
    (tmp_path / "answers").write_text("y\n")
    with (tmp_path / "answers").open() as file:
        lines = terminal.Lines(file.fileno())
        assert [await lines.next() for _ in range(2)] == ["y", None]


def test_who_says_nothing_is_attended_at_a_terminal_alone():
    assert terminal.is_attended(None) is False
    assert (terminal.is_attended(True), terminal.is_attended(False)) == (True, False)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("answer", "one", " "), "TEXT must have 1 to 4,000 characters."),
        (("answer", "one", "x" * 4_001), "TEXT must have 1 to 4,000 characters."),
        (("answer", "one", "\udcff"), "TEXT must be text in UTF-8."),
        (("deny", "one", "--reason", "x" * 4_001), "--reason must have 0 to 4,000 characters."),
    ],
)
def test_an_answer_that_is_none_is_refused_before_anything_is_looked_up(words, problem, capsys):
    assert main(["task", *words]) == 2
    assert capsys.readouterr().err.strip() == problem


def test_people_are_asked_where_it_is_said():
    assert asking(human=False, deadline_seconds=None) == AskRequest()
    assert asking(human=True, deadline_seconds=60) == AskRequest(human=True, deadline_seconds=60)


@pytest.mark.parametrize(("human", "seconds"), [(False, 5), (True, 0), (True, 2_592_001)])
def test_a_wrong_deadline_is_told_in_one_sentence(human, seconds):
    with pytest.raises(
        BadInput, match=r"^--ask-deadline-seconds (needs --ask|must be between 1 and 2,592,000)\.$"
    ):
        asking(human=human, deadline_seconds=seconds)
