"""What agents changed is named by the record, and handed out as a patch and as files."""

from __future__ import annotations

import json
import tarfile

EMPTY_FILE = "diff --git a/done.txt b/done.txt\nnew file mode 100644\n"


def test_a_patch_is_printed_or_written_as_it_is(mixed):
    user, _ = mixed

    printed = user.zubble("task", "patch", "good-1")
    answered = user.zubble("task", "patch", "good-1", "--json").json
    written = user.zubble("task", "patch", "good-1", "-o", "good.patch")

    assert (printed.code, printed.out) == (0, EMPTY_FILE)
    assert (answered["schema"], answered["patch"]) == ("zubble.task-patch/1", EMPTY_FILE)
    assert (user.folder / "good.patch").read_text() == EMPTY_FILE
    assert written.out == f"{len(EMPTY_FILE)} bytes are in good.patch.\n"


def test_changed_files_are_listed_and_written_as_a_tar(mixed):
    user, _ = mixed

    listed = user.zubble("task", "files", "good-1", "-o", "good.tar")
    answered = user.zubble("task", "files", "good-1", "--json").json

    assert listed.out.splitlines()[1].split() == ["done.txt", "0", "644"]
    assert answered["files"] == [{"path": "done.txt", "bytes": 0, "executable": False}]
    with tarfile.open(user.folder / "good.tar") as archive:
        assert archive.getnames() == ["done.txt"]


def test_the_whole_work_tree_is_to_be_had_as_well(mixed):
    user, _ = mixed

    whole = user.zubble("task", "files", "good-1", "--whole", "-o", "tree.tar", "--json").json

    assert [file["path"] for file in whole["files"]] == ["done.txt"]
    with tarfile.open(user.folder / "tree.tar") as archive:
        assert archive.getnames() == ["done.txt"]


def test_an_agent_that_changed_nothing_leaves_nothing(mixed):
    user, _ = mixed

    patch, files = (
        user.zubble("task", "patch", "bad-1"),
        user.zubble("task", "files", "bad-1", "-o", "no.tar"),
    )

    assert (patch.code, patch.out) == (0, "")
    for said in (patch, files):
        assert "left no new or different file" in said.err
    with tarfile.open(user.folder / "no.tar") as archive:
        assert archive.getnames() == []


def test_the_record_says_how_the_edits_are_had(mixed):
    user, _ = mixed

    task_id = user.zubble("task", "show", "good-1", "--json").json["task_id"]
    shown = user.zubble("task", "show", "good-1").out

    assert f"(zubble task patch {task_id})" in shown
    assert f"(zubble task files {task_id})" in shown


def test_an_export_writes_them_beside_its_lines(mixed):
    user, _ = mixed

    said = user.zubble(
        *("batch", "export", "b", "--format", "patches", "-o", "predictions.jsonl"),
        *("--edits", "edits", "--json"),
    )

    assert said.json["edits"] == {"folder": "edits", "tasks": 2}
    lines = [json.loads(line) for line in (user.folder / "predictions.jsonl").read_text().splitlines()]
    assert lines[0] == {"instance_id": "good-1", "model_name_or_path": "mock", "model_patch": EMPTY_FILE}
    assert lines[1]["model_patch"] == ""
    patches = sorted((user.folder / "edits").glob("*/changes.patch"))
    assert [path.read_text() for path in patches] == [EMPTY_FILE, EMPTY_FILE]
    assert len(list((user.folder / "edits").glob("*/changed_files.tar"))) == 2


def test_a_place_that_cannot_be_written_is_one_sentence(mixed):
    user, _ = mixed

    said = user.zubble("task", "patch", "good-1", "-o", "none/good.patch")

    assert (said.code, said.out) == (2, "")
    assert said.problems == ["none/good.patch cannot be written: No such file or directory."]
