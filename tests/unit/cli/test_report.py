"""What is said to people and to programs."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import pytest
import typer

from zubble_queue.cli import app as commands
from zubble_queue.cli import main, views
from zubble_queue.cli import main as run_main
from zubble_queue.cli.report import Report, duration, plain, usd
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.record import BatchInfo, BatchView
from zubble_queue.errors import (
    BadInput,
    CannotStart,
    InfraError,
    JobError,
    LeaseLost,
    StoreUnavailable,
    UnknownName,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode ✓ 漢字", "plain ünïcode ✓ 漢字"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202e\u200b\u2066", r"\u202e\u200b\u2066"),
        ("\u2028", r"\u2028"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_what_could_act_on_a_terminal_is_shown_escaped(text, shown):
    assert plain(text) == shown


def test_line_ends_are_kept_where_lines_are_wanted():
    assert plain("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"


@pytest.mark.parametrize(
    ("amount", "shown"), [(0, "$0.00"), (0.005043, "$0.005043"), (0.01, "$0.01"), (12.345, "$12.35")]
)
def test_money_has_more_digits_below_a_cent(amount, shown):
    assert usd(amount) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3_725, "1 h 2 min")]
)
def test_durations_are_shown_in_the_unit_that_fits(seconds, shown):
    assert duration(seconds) == shown


def test_with_json_only_the_object_goes_to_standard_output(capsys):
    report = Report("batch-show", as_json=True)
    report.say("for people")
    report.table(("A",), [("b",)])
    report.note("on the way")
    report.result({"a": 1})

    said = capsys.readouterr()
    assert json.loads(said.out) == {"schema": "zubble.batch-show/1", "a": 1}
    assert said.err == "on the way\n"


def test_without_json_people_read_standard_output(capsys):
    report = Report("batch-show", as_json=False)
    report.say("for people")
    report.table(("A", "B"), [("x\x1b", "y" * 200)])
    report.result({"a": 1})

    assert capsys.readouterr().out == f"for people\nA      B\nx\\x1b  {'y' * 200}\n"


def test_many_problems_are_cut_and_counted(capsys):
    report = Report("batch-submit", as_json=False)

    assert report.failed(2, [f"problem {number}." for number in range(60)]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[-1]) == (51, "… and 10 more.")


@pytest.fixture
def failing(monkeypatch):
    """Make the command line run something that fails."""

    def fail(error):
        def command():
            raise error

        app = typer.Typer()
        app.command()(command)
        monkeypatch.setattr(commands, "app", app)
        return run_main([])

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput(["one.", "two."]), 2, "one.\ntwo.\n"),
        (UnknownName("model", "x", ["b", "a"]), 2, "Unknown model 'x'; known: a, b.\n"),
        (CannotStart("no server."), 2, "no server.\n"),
        (JobError("bad job."), 2, "bad job.\n"),
        (StoreUnavailable("Redis is away."), 3, "Redis is away.\n"),
        (InfraError("broken."), 3, "broken.\n"),
        (LeaseLost("lost."), 3, "lost.\n"),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/x"),
            2,
            "There is no space left on the device (/x).\n",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 2, "Permission denied (/x).\n"),
    ],
)
def test_each_expected_error_has_its_code_and_no_traceback(failing, capsys, error, code, said):
    assert failing(error) == code
    assert capsys.readouterr().err == said


def test_a_fault_of_ours_shows_its_traceback(failing, capsys):
    assert failing(ZeroDivisionError("oops")) == 70

    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("This is a fault in zubble-queue; please report it.\n")


def batch(total, **outcomes):
    return BatchView(
        info=BatchInfo(name="b"),
        state="done",
        created_at=0.0,
        total=total,
        states={"sealed": total},
        outcomes=outcomes,
        usage=Usage(),
        tokens_saved=0,
        phase_seconds={},
        requeues=0,
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ({"verified": 3}, 0),
        ({"verified": 2, "failed": 1}, 1),
        ({"verified": 2, "cancelled": 1}, 1),
        ({"verified": 2, "limit:spend": 1}, 1),
        ({"verified": 2, "limit:batch_spend": 1}, 4),
        ({"verified": 2, "limit:tenant_spend": 1}, 4),
    ],
)
def test_the_outcomes_decide_the_exit_code(outcomes, code):
    assert views.exit_code(batch(3, **outcomes)) == code


COMMANDS = {
    *(
        f"batch {word}"
        for word in ("cancel", "export", "ls", "pause", "resume", "retry", "rm", "set", "show")
    ),
    *("batch submit", "batch watch", "budget set", "budget show", "config show", "detect", "dispatcher"),
    *(
        "doctor",
        "flower",
        "memory forget",
        "memory ls",
        "memory show",
        "mock-endpoint",
        "replay",
        "run",
        "loop",
    ),
    *("sandbox exec", "sandbox ls", "sandbox pull", "sandbox rm"),
    *("task answer", "task approve", "task deny"),
    *(
        "task cancel",
        "task files",
        "task ls",
        "task patch",
        "task report",
        "task show",
        "task tail",
        "task trace",
        "up",
        "worker",
    ),
}


def walk(command, path=()):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, (*path, name))


def test_every_command_shows_an_example_of_itself(capsys):
    tree = dict(walk(typer.main.get_command(commands.app)))
    leaves = [path for path, command in tree.items() if not getattr(command, "commands", None)]
    assert {" ".join(path) for path in leaves} == COMMANDS

    for path in leaves:
        assert main([*path, "--help"]) == 0
        assert f"zubble {' '.join(path)}" in capsys.readouterr().out.partition("Example")[2], path


def test_help_is_quick_because_it_imports_next_to_nothing():
    code = (
        "import sys\nfrom zubble_queue.cli import main\nmain(['--help'])\n"
        "heavy = {'celery', 'httpx', 'redis', 'pydantic', 'pydantic_settings', 'asyncio', 'fsspec', 'rich', "
        "'structlog', 'zubble_worker', 'zubble_sandbox', 'kubernetes', 'docker'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(done.stderr.strip().strip("[]").replace("'", "").split(", ")) <= {"asyncio", ""}
