"""Tools beside the shell: what they do, that their errors are answers, and that no other one is used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.decisions import Allow, Decisions, Deny
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.sandbox import CommandResult, Sandbox, SandboxSpec, shell
from zubble_queue.testing import structured_reply as say
from zubble_sandbox.local import LocalProvider
from zubble_worker.actuators import files
from zubble_worker.actuators.dispatch import Place, call
from zubble_worker.actuators.results import RESULT_BYTES
from zubble_worker.transcript import Job, Transcript

from .conftest import envelope

ALL = ("shell", "read", "write", "edit", "list", "run_tests", "wait")
PLAN = say("plan", steps=["make the file"])
SUBMIT = say("submit")


def use(tool: str, **arguments: Any) -> str:
    return say("tool", tool=tool, arguments=arguments, plan_step_id=1)


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    opened = await LocalProvider().open(SandboxSpec(name="test.tools", owner="test"))
    yield opened
    await opened.destroy()


async def done(box: Sandbox, tool: str, /, **arguments: Any) -> CommandResult:
    return await call(tool, arguments, Place(box, seconds=20, command_seconds=10, tests="echo ran; exit 3"))


async def failure(box: Sandbox, tool: str, /, **arguments: Any) -> str:
    result = await done(box, tool, **arguments)
    assert result.exit_code == 1
    return result.stderr.decode()


async def test_a_task_is_done_with_tools_alone(drive):
    run = await drive(
        PLAN,
        use("write", path="src/a.txt", content="one\ntwo\n"),
        use("edit", path="src/a.txt", old="two", new="three"),
        use("read", path="src/a.txt"),
        use("list"),
        use("write", path="done.txt", content=""),
        SUBMIT,
        tools=("read", "write", "edit", "list"),
    )

    assert run.stopped.stop is Stop.SUBMITTED
    assert "one\nthree\n" in run.prompts[4]
    assert "src/a.txt (10 bytes)" in run.prompts[5]
    assert [entry.category for entry in run.books.entries] == [
        *("fix_attempt", "fix_attempt", "diagnostic", "diagnostic", "fix_attempt"),
    ]
    assert [data["tool"] for data in run.books.of_type("dispatch")] == [
        *("write", "edit", "read", "list", "write"),
    ]


async def test_a_run_with_tools_is_the_same_when_it_is_folded_again(drive):
    run = await drive(
        PLAN,
        use("write", path="done.txt", content="x"),
        use("wait", seconds=0.05),
        use("read", path="absent"),
        SUBMIT,
        tools=ALL,
        test_command="true",
    )
    folded = Transcript(Job(run.transcript.job.envelope, ""))
    folded.replay(run.books.events)

    assert folded == run.transcript
    assert 0.05 <= folded.seconds["wait"] < folded.seconds["wait"] + folded.seconds["exec"]


@pytest.mark.parametrize("tool", ["write", "browser"])
async def test_a_tool_that_is_not_allowed_is_not_run_and_ends_the_run(drive, tool):
    run = await drive(PLAN, use(tool, path="done.txt", content=""), tools=("shell", "read"))

    assert run.stopped.stop is Stop.LIMIT_ALLOWED_TOOLS
    assert "done.txt" not in run.files
    assert not run.books.of_type("dispatch")


async def test_a_condition_of_a_wait_is_a_shell_command_and_must_be_allowed(drive):
    run = await drive(PLAN, use("wait", seconds=1, until="touch done.txt"), tools=("wait",))

    assert run.stopped.stop is Stop.LIMIT_ALLOWED_TOOLS
    assert "done.txt" not in run.files


async def test_the_gate_sees_tools_and_the_condition_of_a_wait(drive):
    class NoTouching(Decisions):
        seen: list[tuple[str, str]] = []  # noqa: RUF012

        def before_dispatch(self, view: Any, tool: str, command: str) -> Allow | Deny:
            self.seen.append((tool, command))
            return Deny("no touching") if "touch" in command and tool == "shell" else Allow()

    run = await drive(
        PLAN,
        use("wait", seconds=1, until="touch done.txt"),
        say("report", report="no"),
        tools=ALL,
        test_command="true",
        decisions=NoTouching(),
    )

    assert NoTouching.seen == [
        ("wait", '{"seconds": 1, "until": "touch done.txt"}'),
        ("shell", "touch done.txt"),
    ]
    assert "was not run: no touching" in run.prompts[2]
    assert "done.txt" not in run.files


async def test_the_same_failing_edit_is_refused_like_a_command(drive):
    same = use("edit", path="absent", old="a", new="b")
    run = await drive(
        PLAN, same, same, same, same, same, tools=ALL, test_command="true", max_context_resets=0
    )

    assert run.stopped.stop is Stop.LOOP_ACTION
    assert len(run.books.of_type("command_finished")) == 2


async def test_waiting_again_is_no_loop(drive):
    again = use("wait", seconds=0.01, until="test -f never")
    run = await drive(
        *(PLAN, again, again, again, again),
        *(use("write", path="done.txt", content=""), SUBMIT),
        tools=ALL,
        test_command="true",
    )

    assert run.stopped.stop is Stop.SUBMITTED
    assert len(run.books.of_type("command_finished")) == 5


async def test_tests_run_where_the_agent_works_and_prove_nothing(drive):
    run = await drive(
        PLAN,
        use("run_tests"),
        say("report", report="no"),
        tools=("run_tests",),
        test_command="echo 3 passed; false",
    )

    assert "exit code 1\nstdout:\n3 passed" in run.prompts[2]
    assert run.books.entries[0].category == "verification"


def test_a_task_that_allows_run_tests_says_what_they_are():
    with pytest.raises(ValidationError, match="test_command: the tool 'run_tests' needs one"):
        envelope(tools=("run_tests",))


@pytest.mark.parametrize(
    ("old", "problem"),
    [
        ("x", "old: 0 matches"),
        ("a", "old: 2 matches"),
        ("bb", "old: 2 matches"),
        (".", "old: 0 matches"),
    ],
)
async def test_an_edit_needs_exactly_one_literal_match(box, old, problem):
    await box.write("f", b"a bbb a")

    assert problem in await failure(box, "edit", path="f", old=old, new="y")
    assert await box.read("f") == b"a bbb a"


async def test_an_edit_keeps_a_program_a_program(box):
    await box.write("run.sh", b"#!/bin/sh\necho old\n", executable=True)

    await done(box, "edit", path="run.sh", old="old", new="new")

    assert (await box.exec(shell("./run.sh"))).stdout == b"new\n"


@pytest.mark.parametrize(
    ("tool", "given", "problem"),
    [
        ("read", {"path": "absent"}, "absent: No such file"),
        ("read", {"path": "/etc/passwd"}, "is not in the work tree"),
        ("read", {"path": "../../etc/passwd"}, "leaves the work tree"),
        ("read", {"path": "/work/../etc/passwd"}, "leaves the work tree"),
        ("read", {"path": "/workshop/a"}, "is not in the work tree"),
        ("write", {"path": "a/../../b", "content": ""}, "leaves the work tree"),
        ("read", {"path": "a\0b"}, "is not in the work tree"),
        ("read", {"path": "f", "offset": 0}, "offset: Input should be greater than or equal to 1"),
        ("read", {"path": "f", "offset": 9}, "offset: f has only 2 lines"),
        ("read", {}, "path: Field required; read takes: path, offset, limit"),
        ("write", {"path": "f", "content": 3}, "content: Input should be a valid string"),
        ("write", {"path": ".", "content": ""}, ".: "),
        ("edit", {"path": "binary", "old": "a", "new": "b"}, "binary is not UTF-8 text"),
        ("list", {"path": "absent"}, "absent: No such file"),
        ("wait", {"seconds": 601}, "seconds: Input should be less than or equal to 600"),
        ("wait", {"seconds": 0}, "seconds: Input should be greater than 0"),
        ("run_tests", {"path": "f"}, "path: Extra inputs are not permitted; run_tests takes: none"),
        ("fly", {}, "there is no tool 'fly'"),
    ],
)
async def test_an_error_is_a_value(box, tool, given, problem):
    await box.write("f", b"one\ntwo\n")
    await box.write("binary", b"\xff\xfe")

    assert problem in await failure(box, tool, **given)


async def test_a_link_out_of_the_work_tree_leads_nowhere(box):
    await box.exec(shell("ln -s /etc/passwd link; ln -s /etc folder"))

    assert "root" not in await failure(box, "read", path="link")
    assert "root" not in await failure(box, "read", path="folder/passwd")
    await failure(box, "edit", path="link", old="root:x", new="y")
    assert (await done(box, "list")).stdout == b"(. holds no files)"


async def test_a_long_file_is_read_page_by_page(box):
    lines = [f"line {number} {'x' * 90}\n" for number in range(1, 601)]
    await box.write("f", "".join(lines).encode())
    text, offset = "", 1
    while offset:
        page = (await done(box, "read", path="f", offset=offset)).stdout.decode()
        assert len(page) <= RESULT_BYTES + 100
        content, _, footer = page.rpartition("\n[")
        text += f"{content}\n"
        offset = int(footer.rpartition("offset ")[2].rstrip("]")) if "offset" in footer else 0

    assert text == "".join(lines)


@pytest.mark.parametrize(("count", "more"), [(199, False), (200, False), (201, True)])
async def test_a_listing_ends_after_200_entries_and_says_so(box, count, more):
    await box.exec(shell(f"for i in $(seq {count}); do : > f$i; done"))

    listed = (await done(box, "list")).stdout.decode().splitlines()

    assert len(listed) == min(count, files.LISTED) + more
    assert ("[1 more; list a folder below]" in listed) is more


async def test_a_wait_ends_when_its_condition_holds(box):
    result = await done(box, "wait", seconds=15, until="test -f go || { touch go; false; }")

    assert result.stdout.startswith(b"the condition holds after")
    assert result.seconds < 15


async def test_a_wait_is_no_longer_than_the_run_may_take(box):
    result = await call("wait", {"seconds": 500}, Place(box, seconds=0.05, command_seconds=10))

    assert result.stdout == b"waited 0.05 s"


async def test_tests_are_stopped_at_their_deadline(box):
    result = await call(
        "run_tests", {}, Place(box, seconds=20, command_seconds=10, tests="sleep 9", tests_seconds=0.2)
    )

    assert result.timed_out
