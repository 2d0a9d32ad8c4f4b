"""What counts as progress, and what only looks like it."""

from __future__ import annotations

import pytest

from zubble_worker.observers.actions.facts import Call, StepFacts
from zubble_worker.observers.actions.progress import Evidence
from zubble_worker.observers.actions.results import digest, is_echo
from zubble_worker.observers.actions.targets import program, targets, waits


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 passed in 0.12s", "3 passed in 14.80s"),
        ("2026-11-30 12:00:01,123 INFO start", "2026-12-01 03:14:15,926 INFO start"),
        ("<Widget at 0x7f31aa00>", "<Widget at 0x7f99bb10>"),
        ("started, pid 4242", "started, pid 17"),
        ("Process 99 ended", "Process 100 ended"),
        ("index 3fa4b1c2d3e4 done", "index 9b8c7d6e5f4a done"),
        ("sshd[311]: closed", "sshd[9021]: closed"),
        ("Mon Nov 30 22:27:58 UTC 2026", "Tue Dec 1 02:07:08 UTC 2026"),
        ("at 1764541678", "at 1764549999"),
        ("saved /tmp/tmpa1b2.log", "saved /tmp/tmpzz99.log"),
        ("a.py\n[request 7 of 100]", "a.py\n[request 8 of 100]"),
        ("\x1b[31mred\x1b[0m", "\x1b[1mred\x1b[22m"),
        ("took 3 minutes", "took 5 minutes"),
    ],
)
def test_results_that_differ_in_what_always_differs_are_equal(one: str, other: str) -> None:
    assert digest("ok", one) == digest("ok", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2 failed, 3 passed", "1 failed, 4 passed"),
        ("step 3 of 10", "step 4 of 10\ndone"),
        ("[request 7]\na.py", "[request 8]\na.py"),
        ("x = 10", "x = 11"),
        ("v1.2.3", "v1.2.4"),
    ],
)
def test_results_that_differ_in_what_they_say_are_not(one: str, other: str) -> None:
    assert digest("ok", one) != digest("ok", other)


def test_the_end_is_part_of_a_result() -> None:
    assert digest("ok", "x") != digest("failed", "x")


@pytest.mark.parametrize(
    ("command", "about"),
    [
        ("cat src/app.py", {"cat", "src/app.py"}),
        ("sed -n '41,80p' notes.md", {"sed", "notes.md"}),
        ("echo 'I am explaining the sections' && true", set()),
        ("echo done > out/log.txt", {"out/log.txt"}),
        ('grep -rn "def main" src', {"grep", "src"}),
        ("grep -rn 'main' src", {"grep", "main", "src"}),
    ],
)
def test_targets_are_names_and_paths_and_never_talk(command: str, about: set[str]) -> None:
    assert targets("shell", command) == about


def test_targets_of_a_tool_are_the_single_words_of_its_arguments() -> None:
    assert targets("read", '{"path": "a/b.c", "why": "to see more", "from": 3}') == {"a/b.c"}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("cd src && FOO=1 /usr/bin/python3 x.py | head", "python3"),
        ("ls", "ls"),
        ("", "shell"),
    ],
)
def test_a_command_is_counted_by_its_program(command: str, name: str) -> None:
    assert program("shell", command) == name


@pytest.mark.parametrize("command", ["sleep 5", "sleep 2.5s", "sleep 10 && tail -1 log", "sleep 1; cat x"])
def test_a_command_that_begins_with_a_sleep_waits(command: str) -> None:
    assert waits("shell", command)


@pytest.mark.parametrize("command", ["cat sleep", "make && sleep 1", "sleepy 3", "sleep $N"])
def test_other_commands_do_not(command: str) -> None:
    assert not waits("shell", command)


def test_a_wait_is_one_whatever_its_arguments() -> None:
    assert waits("wait", "{}")


def test_output_that_repeats_the_commands_own_words_is_no_news() -> None:
    assert is_echo('echo "Responding to user."', "Responding to user.\n")
    assert not is_echo("cat greeting", "hello\n")


def step(command: str, output: str = "", *, tree: str = "t", end: str = "ok", at: int = 1) -> StepFacts:
    return StepFacts(at, end, Call(command, tree), output=output)  # type: ignore[arg-type]


def test_the_first_sight_of_a_file_is_news_and_the_second_is_none() -> None:
    evidence = Evidence()
    first, second = (evidence.add(step("cat a.txt", "content")) for _ in range(2))

    assert (first.new_target, first.new_result) == (True, True)
    assert not second.any


def test_a_page_further_on_is_a_new_result_of_an_old_target() -> None:
    evidence = Evidence()
    evidence.add(step("sed -n 1,40p a.txt", "one"))
    on = evidence.add(step("sed -n 41,80p a.txt", "two"))

    assert (on.new_target, on.new_result) == (False, True)


def test_the_change_a_command_made_is_seen_with_the_next_one() -> None:
    evidence = Evidence()
    evidence.add(step("touch a", tree="before"))

    assert evidence.add(step("touch a", tree="after")).changed


def test_a_refused_call_brings_nothing() -> None:
    assert not Evidence().add(step("cat a.txt", "content", end="refused")).any


@pytest.mark.parametrize(("waited", "patient"), [(9, True), (10, False), (11, False)])
def test_patience_ends_after_ten_waits_without_news(waited: int, *, patient: bool) -> None:
    evidence = Evidence()
    evidence.add(step("cat status", "running"))
    for _ in range(waited):
        evidence.add(step("sleep 5"))

    assert evidence.is_patient_wait(Call("sleep 5", "t")) is patient


def test_news_restores_patience() -> None:
    evidence = Evidence()
    for _ in range(10):
        evidence.add(step("sleep 5"))
    evidence.add(step("cat status", "done"))

    assert evidence.is_patient_wait(Call("sleep 5", "t"))
