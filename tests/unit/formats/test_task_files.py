"""Task files become envelopes, or every problem of every line is named and nothing is made."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace

import pytest

from zubble_queue.contracts.envelope import BlobRef, SandboxRequest
from zubble_queue.contracts.submission import TaskDefaults
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import BadInput
from zubble_queue.formats import envelopes, humaneval
from zubble_queue.formats.detection import format_of

DEFAULTS = TaskDefaults(
    batch="b", model="m", budget=LoopBudget(max_iterations=7), sandbox=SandboxRequest(backend="local")
)


def task(**fields):
    return {"id": "a", "description": "Do it.", "verify": {"command": "true"}, **fields}


HOSTS = replace(DEFAULTS, sandbox=SandboxRequest(network="allowlist", allowed_hosts=("a.example",)))


@pytest.fixture
def written(tmp_path):
    def write(*lines, name="tasks.jsonl"):
        path = tmp_path / name
        texts = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
        path.write_bytes(b"\n".join(texts))
        return path

    return write


def problems_of(read, path, defaults=DEFAULTS):
    with pytest.raises(BadInput) as caught:
        read(path, defaults)
    return caught.value.problems


def test_a_line_takes_from_the_flags_what_it_does_not_say(written):
    (parcel,) = envelopes.read(written(task(budget={"max_tokens": 9})), DEFAULTS)

    assert parcel.envelope.model == "m"
    assert parcel.envelope.budget == LoopBudget(max_iterations=7, max_tokens=9)
    assert parcel.envelope.sandbox.backend == "local"
    assert parcel.envelope.task.allowed_tools == ("shell",)


@pytest.mark.parametrize(
    ("sandbox", "network", "hosts"),
    [
        ({}, "allowlist", ("a.example",)),
        ({"network": "allowlist"}, "allowlist", ("a.example",)),
        ({"allowed_hosts": ["B.example"]}, "allowlist", ("b.example",)),
        ({"network": "none"}, "none", ()),
        ({"network": "open"}, "open", ()),
    ],
)
def test_the_network_of_a_line_stands_above_that_of_the_flags(written, sandbox, network, hosts):
    (parcel,) = envelopes.read(written(task(sandbox=sandbox)), HOSTS)

    assert (parcel.envelope.sandbox.network, parcel.envelope.sandbox.allowed_hosts) == (network, hosts)
    assert parcel.envelope.verify.network == "none"


def test_a_check_may_have_a_network_of_its_own(written):
    verify = {"command": "true", "network": "allowlist", "allowed_hosts": ["*.Example.org"]}

    (parcel,) = envelopes.read(written(task(verify=verify)), DEFAULTS)

    assert parcel.envelope.sandbox.network == "none"
    assert parcel.envelope.verify.allowed_hosts == ("*.example.org",)


def test_a_line_overrides_the_flags(written):
    line = task(model="other", level="low", temperature=1, sandbox={"work_mb": 8}, labels={"x": "y"})

    (parcel,) = envelopes.read(written(line), DEFAULTS)

    envelope = parcel.envelope
    assert (envelope.model, envelope.level, envelope.temperature) == ("other", "low", 1.0)
    assert (envelope.sandbox.backend, envelope.sandbox.work_mb) == ("local", 8)
    assert dict(envelope.labels) == {"x": "y"}


def test_files_travel_as_blobs_named_by_their_content(written):
    line = task(
        files={"a.txt": "text", "run.sh": {"base64": "AP8=", "executable": True}},
        verify={"command": "true", "files": {"check.py": "pass"}},
    )

    (parcel,) = envelopes.read(written(line), DEFAULTS)

    entries = {entry.path: entry.blob for entry in parcel.envelope.files}
    assert parcel.blobs[entries["a.txt"].ref] == b"text"
    assert parcel.blobs[entries["run.sh"].ref] == b"\x00\xff"
    assert (entries["a.txt"].executable, entries["run.sh"].executable) == (False, True)
    (check,) = parcel.envelope.verify.files
    assert check.blob.ref == f"sha256:{hashlib.sha256(b'pass').hexdigest()}"


def test_instructions_over_eight_kib_become_a_reference(written):
    text = "x" * 9_000

    (parcel,) = envelopes.read(written(task(instructions=text)), DEFAULTS)

    assert isinstance(parcel.envelope.instructions, BlobRef)
    assert parcel.blobs[parcel.envelope.instructions.ref] == text.encode()


def test_instructions_beyond_the_context_budget_are_refused(written):
    line = task(instructions="x" * 900, context_budget_tokens=300)

    (problem,) = problems_of(envelopes.read, written(line))

    assert "tasks.jsonl line 1: instructions: about 30" in problem


def test_repeats_are_tasks_of_their_own(written):
    defaults = TaskDefaults(batch="b", model="m", repeats=3)

    parcels = envelopes.read(written(task(), task(id="b", repeats=1)), defaults)

    assert [(p.envelope.source_id, p.envelope.repeat) for p in parcels] == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 1),
    ]
    assert len({p.envelope.task_id for p in parcels}) == 4


def test_the_order_and_the_company_of_lines_do_not_change_a_task(written):
    one = envelopes.read(written(task(), task(id="b")), DEFAULTS)
    two = envelopes.read(written(task(id="c"), task(id="b"), task()), DEFAULTS)

    identity = {(p.envelope.task_id, p.envelope.content_hash()) for p in one}
    assert identity <= {(p.envelope.task_id, p.envelope.content_hash()) for p in two}


def test_lines_are_split_on_newline_bytes_only(written):
    separators = "a\u2028b\u2029c\x85d"
    path = written(json.dumps(task(description=separators), ensure_ascii=False).encode(), b"", task(id="b"))

    first, _ = envelopes.read(path, DEFAULTS)

    assert first.envelope.task.description == separators


def test_windows_line_ends_and_a_byte_order_mark_are_read(written):
    path = written(b"\xef\xbb\xbf" + json.dumps(task()).encode() + b"\r", task(id="b"))

    assert len(envelopes.read(path, DEFAULTS)) == 2


def test_every_problem_of_every_line_is_named_at_once(written):
    path = written(
        task(budget={"max_iterations": 500, "max_spend_usd": -1}),
        b'{"id": ',
        b"[1]",
        task(id="b", colour="red"),
        task(id="c", verify={}),
        b'{"id": "d", "temperature": NaN}',
        b"\xff",
        task(id="a"),
    )

    assert problems_of(envelopes.read, path) == (
        "tasks.jsonl line 1: budget.max_iterations: should be less than or equal to 100, got 500.",
        "tasks.jsonl line 1: budget.max_spend_usd: should be greater than 0, got -1.",
        "tasks.jsonl line 2: not valid JSON: Expecting value at column 7.",
        "tasks.jsonl line 3: must be a JSON object, not list.",
        "tasks.jsonl line 4: colour: there is no such field.",
        "tasks.jsonl line 5: verify.command: is missing.",
        "tasks.jsonl line 6: not valid JSON: NaN is not JSON.",
        "tasks.jsonl line 7: not valid JSON: the text is not UTF-8.",
        "tasks.jsonl line 8: id: 'a' is already used by line 1.",
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (task(budget={"max_wallclock_seconds": 0}), "budget.max_wallclock_seconds: should be greater than"),
        (task(budget={"max_tokens": 500_001}), "budget.max_tokens: should be less than or equal to 500000"),
        (task(budget={"max_tokens": True}), "budget.max_tokens: should be a valid integer"),
        (task(budget={"steps": 1}), "budget.steps: there is no such field"),
        (task(description=""), "description: string should have at least 1 character"),
        (task(description="x" * 501), "description: string should have at most 500 characters"),
        (task(verify={"command": "x" * 201}), "verify.command: string should have at most 200 characters"),
        (task(id="x" * 401), "id: string should have at most 400 characters"),
        (task(id=""), "id: string should have at least 1 character"),
        (task(files={"../x": ""}), "files: path '../x' must be relative"),
        (task(files={"/x": ""}), "files: path '/x' must be relative"),
        (task(files={"a": "", "a/b": ""}), "files: 'a' cannot be a file and the folder of 'a/b'"),
        (task(files={"a": {"text": "", "base64": ""}}), "files.a: exactly one of text and base64"),
        (task(files={"a": {"base64": "?"}}), "files.a: base64 is not valid"),
        (task(allowed_tools=["browser"]), "allowed_tools: there is no tool 'browser'; known: shell"),
        (task(level="huge"), "level: should be 'off', 'low', 'medium' or 'xhigh'"),
        (task(temperature=3), "temperature: should be less than or equal to 2"),
        (task(repeats=0), "repeats: should be greater than or equal to 1, got 0"),
        (task(sandbox={"network": "yes"}), "sandbox.network: should be 'none', 'allowlist' or 'open'"),
        (
            task(sandbox={"network": "allowlist", "allowed_hosts": ["a.example", "https://b.example"]}),
            "sandbox.allowed_hosts.1: 'https://b.example' must be a name, not a URL",
        ),
        (
            task(sandbox={"allowed_hosts": ["a.example"]}),
            "sandbox: allowed_hosts need network 'allowlist', not 'none'",
        ),
        (
            task(verify={"command": "true", "network": "allowlist", "allowed_hosts": ["::1"]}),
            "verify.allowed_hosts.0: '::1' must be a name, without a port and not an address",
        ),
        (
            task(verify={"command": "true", "network": "lan"}),
            "verify.network: should be 'none', 'allowlist' or 'open'",
        ),
        (task(model=3), "model: should be a valid string"),
        (task(task_type="No Spaces"), "task_type: string should match pattern"),
        (b'{"id": "a", "id": "b"}', "not valid JSON: the name 'id' occurs twice"),
        (b'{"id": "\\ud800"}', "not valid JSON: the text is not UTF-8"),
        (b"[" * 100_000, "not valid JSON: "),
    ],
)
def test_a_wrong_line_is_named_with_its_field(written, line, problem):
    found = problems_of(envelopes.read, written(line))

    assert found[0].startswith(f"tasks.jsonl line 1: {problem}")
    assert found[0].endswith(".")


def test_a_missing_file_is_one_sentence(tmp_path):
    (problem,) = problems_of(envelopes.read, tmp_path / "none.jsonl")

    assert problem == f"{tmp_path}/none.jsonl cannot be read: No such file or directory."


def test_a_folder_is_not_a_task_file(tmp_path):
    (problem,) = problems_of(envelopes.read, tmp_path)

    assert problem == f"{tmp_path} cannot be read: Is a directory."


def test_an_empty_file_is_refused(written):
    (problem,) = problems_of(envelopes.read, written(b"\n\n"))

    assert problem.endswith("holds no task.")


def test_a_truncated_gzip_file_is_one_sentence(tmp_path):
    path = tmp_path / "tasks.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(task()).encode())[:-12])

    (problem,) = problems_of(envelopes.read, path)

    assert problem.startswith(f"{path} cannot be read: ")


def humaneval_line(**fields):
    return {"task_id": "HumanEval/0", "prompt": "def f(): ...\n", "entry_point": "f", "test": "x", **fields}


def test_humaneval_is_read_whole_and_keeps_its_tests_from_the_agent(humaneval_file, humaneval_tasks):
    parcels = humaneval.read(humaneval_file, DEFAULTS)

    assert len(parcels) == 164
    for parcel, line in zip(parcels, humaneval_tasks, strict=True):
        envelope = parcel.envelope
        assert envelope.source_id == line["task_id"]
        assert line["prompt"] in envelope.instructions
        assert line["test"] not in envelope.instructions
        assert envelope.files == ()
        assert [entry.path for entry in envelope.verify.files] == ["check.py", "task.json"]


def test_the_check_gets_the_tests_of_its_task(written):
    (parcel,) = humaneval.read(written(humaneval_line(canonical_solution="secret")), DEFAULTS)

    files = {entry.path: parcel.blobs[entry.blob.ref] for entry in parcel.envelope.verify.files}
    given = json.loads(files["task.json"])
    assert (given["entry_point"], given["test"]) == ("f", "x")
    assert b"secret" not in b"".join(parcel.blobs.values())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"entry_point": "f()"}, "entry_point: string should match pattern"),
        ({"prompt": ""}, "prompt: string should have at least 1 character"),
        ({"test": None}, "test: should be a valid string"),
    ],
)
def test_a_wrong_humaneval_line_is_named(written, fields, problem):
    (found,) = problems_of(humaneval.read, written(humaneval_line(**fields)))

    assert found.startswith(f"tasks.jsonl line 1: {problem}")


def test_the_format_is_told_by_the_first_object(written, humaneval_file):
    assert format_of(humaneval_file) == "humaneval"
    assert format_of(written(b"", task())) == "envelopes"
    assert format_of(written(b"not json", task())) == "envelopes"
