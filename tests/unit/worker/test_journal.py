"""Journal entries are categorised, cut, and told to a fresh context."""

from __future__ import annotations

import json

import pytest

from zubble_queue.contracts.sandbox import CommandResult
from zubble_worker import journal


def result(stdout: bytes = b"", *, exit_code: int | None = 0, timed_out: bool = False) -> CommandResult:
    return CommandResult(
        exit_code=exit_code,
        signal=None,
        timed_out=timed_out,
        oom=False,
        stdout=stdout,
        stderr=b"",
        stdout_bytes=len(stdout),
        stderr_bytes=0,
        truncated=False,
        seconds=0.1,
    )


@pytest.mark.parametrize(
    ("command", "category"),
    [
        ("ls -la", "diagnostic"),
        ("grep -rn foo src 2>/dev/null", "diagnostic"),
        ("cat a.py 2>&1 | head", "diagnostic"),
        ("cat > a.py <<'E'\nx = 1\nE", "fix_attempt"),
        ("echo x >> a.txt", "fix_attempt"),
        ("sed -i s/a/b/ a.py", "fix_attempt"),
        ("git apply fix.patch", "fix_attempt"),
        ("rm -rf build", "fix_attempt"),
        ("python -m pytest -q", "verification"),
        ("make test", "verification"),
    ],
)
def test_a_command_is_categorised_by_its_text(command, category):
    assert journal.categorise(command) == category


def test_an_entry_holds_the_first_200_characters_of_the_result():
    entry = journal.entry(1, "c" * 900, result(b"x" * 500), "n" * 500, 1.0)

    assert entry.result_summary == "x" * 200
    assert len(entry.command) == 500
    assert entry.model_note == "n" * 200


def test_a_timeout_is_said_to_be_one():
    entry = journal.entry(1, "sleep 99", result(exit_code=None, timed_out=True), None, 1.0)

    assert entry.result_summary == "timed out"
    assert entry.exit_code is None


def test_the_rendering_groups_by_category_with_marks_and_notes():
    entries = [
        journal.entry(1, "ls", result(b"a.py\n"), None, 1.0),
        journal.entry(2, "rm a.py", result(b"", exit_code=1), "was read-only", 2.0),
        journal.entry(3, "pytest", result(b"1 failed", exit_code=1), None, 3.0),
    ]

    assert journal.render(entries) == (
        "[Previous attempts in this task — try a different approach]\n"
        "DIAGNOSTIC:\n  ✓ ls → a.py\n"
        "FIX_ATTEMPT:\n  ✗ rm a.py → no output\n    [Note: was read-only]\n"
        "VERIFICATION:\n  ✗ pytest → 1 failed"
    )


def test_an_empty_journal_tells_nothing():
    assert journal.render([]) == ""


def test_the_file_in_the_work_tree_is_json():
    entries = [journal.entry(1, "ls", result(b"\xff\xfe"), None, 1.0)]

    assert json.loads(journal.to_file(entries))[0]["command"] == "ls"


@pytest.mark.parametrize("tried", [19, 20, 21, 25])
def test_of_more_than_twenty_trials_the_oldest_are_only_counted(tried):
    entries = [
        journal.entry(step, f"df -h /disk{step}", result(b"", exit_code=step % 2), None, 1.0)
        for step in range(1, tried + 1)
    ]

    text = journal.render(entries)

    old = max(tried - 20, 0)
    failed = f" ({(old + 1) // 2} failed)"
    assert text.count("/disk") == min(tried, 20)
    assert f"/disk{tried} " in text
    assert (f"\nEARLIER, ONLY COUNTED: storage {old}{failed}\n" in text) is (old > 0)
    assert ("EARLIER" in text) is (old > 0)
