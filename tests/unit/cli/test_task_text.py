"""What `--task` says: a text, or the name of a file that holds one."""

from __future__ import annotations

import pytest

from zubble_queue.cli.running import text_of
from zubble_queue.errors import BadInput


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_read_and_a_sentence_is_taken_as_it_is_also_where_it_ends_in_a_name(folder):
    (folder / "spec.md").write_text("Make it so.")
    (folder / "my spec.md").write_text("Make it otherwise.")

    assert text_of("spec.md") == "Make it so."
    assert text_of("my spec.md") == "Make it otherwise."
    assert text_of("Make the file done.txt") == "Make the file done.txt"


def test_a_file_that_cannot_be_read_is_one_sentence(folder):
    (folder / "bytes.txt").write_bytes(b"\xff\xfe")

    with pytest.raises(BadInput, match=r"--task: bytes\.txt is not UTF-8 text\."):
        text_of("bytes.txt")
