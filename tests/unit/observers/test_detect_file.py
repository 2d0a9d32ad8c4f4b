from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from zubble_queue.errors import BadInput, UnknownName
from zubble_worker.observers.repetition import detect_file


def test_a_loop_is_reported_with_where_and_how(tmp_path: Path) -> None:
    file = tmp_path / "reply.txt"
    file.write_text("truncated " * 300, encoding="utf-8")
    assert detect_file(file) == {
        "tokens": 300,
        "profile": "graduated",
        "fired": [
            {
                "threshold": 50,
                "token": 238,
                "period": 1,
                "channel": "text",
                "action": "nudge",
                "by": "saturation",
            }
        ],
    }


def test_the_strict_profile_is_had_by_name(tmp_path: Path) -> None:
    file = tmp_path / "reply.txt"
    file.write_text("no " * 8, encoding="utf-8")
    assert detect_file(file, "strict") == {
        "tokens": 8,
        "profile": "strict",
        "fired": [
            {
                "threshold": 5,
                "token": 5,
                "period": 1,
                "channel": "text",
                "action": "restart",
                "by": "burst",
            }
        ],
    }


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00 not text \x80", b"\r\n" * 10, b"\xed\xa0\xbd"])
def test_any_bytes_can_be_judged(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "reply.bin"
    file.write_bytes(content)
    assert detect_file(str(file))["fired"] == []


def test_a_file_larger_than_what_is_read_at_once_is_one_reply(tmp_path: Path) -> None:
    file = tmp_path / "reply.txt"
    file.write_text("é" * 9 + " truncated" * 20_000, encoding="utf-8")
    found = detect_file(file)
    assert found["tokens"] == 20_001
    assert [fired["threshold"] for fired in found["fired"]] == [50, 500, 1_000, 1_500, 3_000]


def test_a_file_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nothing\.txt cannot be read: No such file"):
        detect_file(tmp_path / "nothing.txt")
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        detect_file(tmp_path)


def test_an_unknown_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="gentle"):
        detect_file(tmp_path / "nothing.txt", "gentle")


def test_the_command_line_finds_it_under_its_name() -> None:
    (service,) = entry_points(group="zubble.services", name="detect")
    assert service.load() is detect_file
