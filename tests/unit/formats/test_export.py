"""Results as lines and rows: nothing a model wrote runs in a spreadsheet, no half a file is left."""

from __future__ import annotations

import csv
import io
import json
import tarfile

import pytest

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.submission import TaskDefaults
from zubble_queue.errors import UnknownName
from zubble_queue.formats import edits, export, humaneval
from zubble_queue.formats.export import Row

PROMPT = "def f():\n    '''One.'''\n"


@pytest.fixture
def artifacts(tmp_path):
    return ArtifactStore(str(tmp_path / "artifacts"))


def tree(files, links=()):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return data.getvalue()


@pytest.fixture
def row(tmp_path, artifacts, task_view):
    """Make a row of a HumanEval task that ended in some way."""
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps({"task_id": "=1+1", "prompt": PROMPT, "entry_point": "f", "test": "x"}))
    (parcel,) = humaneval.read(file, TaskDefaults(batch="b", model="m"))
    for data in parcel.blobs.values():
        artifacts.put(data)

    def make(verdict=Verdict.PASSED, reason="", work_tree=None, trajectory=None, **ending):
        named = {"work_tree": work_tree, "trajectory": trajectory}
        refs = {name: artifacts.put(data).ref for name, data in named.items() if data is not None}
        envelope = parcel.envelope
        view = task_view(
            task_id=envelope.task_id, source_id=envelope.source_id, attempt=2, task_type="humaneval"
        )
        given = {"stop": Stop.SUBMITTED, "artifacts": refs, **ending}
        return Row(view, Ending(verdict=verdict, reason=reason, **given), envelope, artifacts)

    return make


async def written(form, *rows, target=None, count=lambda _: None):
    async def source():
        for one in rows:
            yield one

    return await export.write(source(), export.line(form), target, count)


async def test_a_json_line_holds_the_output_and_the_ending(row, capsys):
    assert await written("jsonl", row(verdict=Verdict.FAILED, reason="no")) == 1

    line = json.loads(capsys.readouterr().out)
    assert (line["source_id"], line["outcome"], line["attempts"]) == ("=1+1", "failed", 2)
    assert line["output"]["verify_passed"] is False
    assert line["ending"]["reason"] == "no"


async def test_no_cell_of_a_csv_file_is_a_formula(row, tmp_path):
    reasons = ["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", 'a "quoted", one\nwith a line end']
    target = tmp_path / "out.csv"

    await written("csv", *(row(reason=reason) for reason in reasons), target=target)

    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    assert [one["reason"] for one in rows] == [*(f"'{reason}" for reason in reasons[:5]), reasons[5]]
    assert {one["source_id"] for one in rows} == {"'=1+1"}


@pytest.mark.parametrize(
    ("files", "links", "completion"),
    [
        ({"solution.py": PROMPT.encode() + b"    return 1\n"}, [], "    return 1\n"),
        ({"./solution.py": b"def f(): return 1\n"}, [], "def f(): return 1\n"),
        ({"solution.py": b"\xff"}, [], "\ufffd"),
        ({"other/solution.py": b"x"}, [], ""),
        ({}, [("solution.py", "/etc/passwd")], ""),
        ({"solution.py": b"x" * (export.SOLUTION_BYTES + 1)}, [], ""),
    ],
)
async def test_the_completion_is_what_the_sealed_file_adds_to_the_prompt(
    row, capsys, files, links, completion
):
    await written("humaneval", row(work_tree=tree(files, links)))

    sample = json.loads(capsys.readouterr().out)
    assert sample == {"task_id": "=1+1", "completion": completion, "passed": True, "result": "passed"}


def events(*outputs):
    lines = [{"type": "verify_finished", "data": {"output": output}} for output in outputs]
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, {"type": "stopped", "data": {}}])


@pytest.mark.parametrize(
    ("trajectory", "ending", "result"),
    [
        (events("failed: first\n", "noise\nfailed: AssertionError\n"), {}, "failed: AssertionError"),
        (events("timed out\n"), {}, "timed out"),
        (events(""), {}, "failed: failed"),
        (None, {"stop": Stop.LOOP_TEXT}, "failed: loop:text"),
    ],
)
async def test_the_result_is_what_the_check_said_last_or_the_outcome(row, capsys, trajectory, ending, result):
    await written("humaneval", row(verdict=Verdict.FAILED, trajectory=trajectory, **ending))

    sample = json.loads(capsys.readouterr().out)
    assert (sample["passed"], sample["result"]) == (False, result)


async def test_an_artifact_that_is_gone_costs_its_own_row_and_is_counted(row, capsys):
    gone = row(verdict=Verdict.FAILED, artifacts={"work_tree": f"sha256:{'0' * 64}"})
    whole = row(work_tree=tree({"solution.py": b"x"}))
    line = export.line("humaneval")

    samples = [json.loads(await line(one)) for one in (gone, whole)]

    assert [sample["completion"] for sample in samples] == ["", "x"]
    assert line.missing == 1


async def test_a_file_that_could_not_be_written_whole_is_not_there(row, tmp_path):
    target = tmp_path / "out.jsonl"
    target.write_text("the one before")

    async def broken():
        yield row()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        await export.write(broken(), export.line("jsonl"), target, lambda _: None)

    assert target.read_text() == "the one before"
    assert [path.name for path in tmp_path.glob(".*")] == []


async def test_each_row_is_counted(row, tmp_path):
    counted = []

    await written("csv", row(), row(), target=tmp_path / "x", count=counted.append)

    assert counted == [1, 2]


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="Unknown export format 'xml'; known: csv, humaneval, jsonl"):
        export.line("xml")


PATCH = b"# binary or large file: x (3 bytes)\ndiff --git a/f b/f\nnew file mode 100644\n"


async def test_a_patch_line_is_a_prediction_without_what_a_patch_cannot_hold(row, artifacts, capsys):
    ref = artifacts.put(PATCH).ref
    gone = f"sha256:{'0' * 64}"
    line = export.line("patches")

    async def source():
        for named in ({"patch": ref}, {}, {"patch": gone}):
            yield row(artifacts=named)

    await export.write(source(), line, None, lambda _: None)

    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    diff = PATCH[PATCH.index(b"diff") :].decode()
    assert lines[0] == {"instance_id": "=1+1", "model_name_or_path": "m", "model_patch": diff}
    assert [one["model_patch"] for one in lines[1:]] == ["", ""]
    assert line.missing == 1


async def test_edits_are_written_to_a_folder_for_each_task_that_has_any(row, artifacts, tmp_path):
    named = {"patch": artifacts.put(PATCH).ref, "changed_files": f"sha256:{'0' * 64}"}
    folders = edits.Folders(tmp_path / "edits")

    async def source():
        for kept in (named, {}):
            yield row(artifacts=kept)

    handed_on = [one async for one in folders.filled(source())]

    assert len(handed_on) == 2
    assert (folders.written, folders.missing) == (1, 1)
    [folder] = (tmp_path / "edits").iterdir()
    assert folder.name == handed_on[0].view.task_id
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"changes.patch": PATCH}


@pytest.mark.parametrize(
    ("reward", "cell"),
    [(None, ""), (0.5, "0.5"), ({"tests": 1.0, "style": 0.5}, '{"tests": 1.0, "style": 0.5}')],
)
async def test_a_row_holds_the_reward(row, capsys, reward, cell):
    await written("csv", row(reward=reward))

    [line] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert line["reward"] == cell
