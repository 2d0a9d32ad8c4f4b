"""Harbor's task folders become envelopes, or are refused by the name of the field."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from zubble_queue.contracts.envelope import SandboxRequest, TaskEnvelope
from zubble_queue.contracts.submission import TaskDefaults
from zubble_queue.errors import BadInput
from zubble_queue.formats import harbor
from zubble_queue.formats.detection import format_of

DEFAULTS = TaskDefaults(batch="b", model="m")
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make_task(toml: str = "", name: str = "task", **files: str | bytes) -> Path:
        folder = tmp_path / name
        given = {"instruction.md": "Do it.\n", "tests/test.sh": "#!/bin/sh\n", "task.toml": toml}
        for path, data in {**given, **{key.replace("__", "/"): data for key, data in files.items()}}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data.encode() if isinstance(data, str) else data)
        return folder

    return make_task


def only(folder: Path, defaults: TaskDefaults = DEFAULTS) -> TaskEnvelope:
    [parcel] = harbor.read(folder, defaults)
    return parcel.envelope


def refused(folder: Path) -> list[str]:
    with pytest.raises(BadInput) as bad:
        harbor.read(folder, DEFAULTS)
    return list(bad.value.problems)


def test_a_whole_task_is_read(make):
    folder = make(
        """
        schema_version = "1.4"
        [task]
        name = "acme/sum"
        [metadata]
        difficulty = "easy"
        tags = ["x"]
        [agent]
        timeout_sec = 299.5
        [verifier]
        timeout_sec = 60
        env = { EXPECTED = "5" }
        [environment]
        docker_image = "ghcr.io/acme/sum@sha256:0123"
        cpus = 2
        memory_mb = 2048
        storage_mb = 512
        workdir = "/srv/app"
        network_mode = "allowlist"
        allowed_hosts = ["*.pypi.org", "pypi.org"]
        env = { MODE = "${MODE:-fast}", PLAIN = "a$b" }
        """,
        **{"tests__data/in.bin": b"\0\xff", "solution__solve.sh": "exit 1\n"},
    )

    [parcel] = harbor.read(folder, DEFAULTS)
    task = parcel.envelope

    assert (task.source_id, task.task_type, dict(task.labels)) == ("acme/sum", "acme", {"difficulty": "easy"})
    assert (task.task.description, task.task.verify_command) == ("Do it.", "exec /tests/test.sh")
    assert task.budget.max_wallclock_seconds == 300
    assert task.sandbox == SandboxRequest(
        image="ghcr.io/acme/sum@sha256:0123",
        cpus=2,
        memory_mb=2_048,
        work_mb=512,
        work_dir="/srv/app",
        network="allowlist",
        allowed_hosts=("*.pypi.org", "pypi.org"),
        env={"MODE": "fast", "PLAIN": "a$b"},
        scratch=("/logs/agent", "/logs/artifacts", "/logs/verifier"),
        background=True,
    )
    verify = task.verify
    assert (verify.folder, verify.timeout_seconds, dict(verify.env)) == ("/tests", 60, {"EXPECTED": "5"})
    assert verify.reward_files == ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
    assert {file.path: parcel.blobs[file.blob.ref] for file in verify.files} == {
        "data/in.bin": b"\0\xff",
        "test.sh": b"#!/bin/sh\n",
    }
    assert task.files == (), "neither tests nor solution are in the work tree"


def test_what_a_task_leaves_out_is_as_in_harbor_or_as_the_flags_say(make):
    task = only(make())

    assert (task.source_id, task.task_type) == ("task", "harbor")
    assert (task.sandbox.image, task.sandbox.work_dir) == (None, "/app")
    assert (task.sandbox.network, task.verify.network) == ("open", "open"), "public is Harbor's own default"
    assert (task.sandbox.memory_mb, task.sandbox.work_mb) == (1_024, 256)
    assert (task.verify.timeout_seconds, task.budget) == (600, DEFAULTS.budget)


def test_an_image_without_a_workdir_keeps_its_own(make):
    assert only(make('environment.docker_image = "debian:12"')).sandbox.work_dir is None


@pytest.mark.parametrize(
    ("toml", "agent", "verify"),
    [
        ('[environment]\nnetwork_mode = "no-network"', "none", "none"),
        ("[environment]\nallow_internet = false", "none", "none"),
        ("[environment]\nallow_internet = true", "open", "open"),
        ('[environment]\nallow_internet = false\nnetwork_mode = "public"', "open", "open"),
        ('[environment]\nnetwork_mode = "no-network"\n[agent]\nnetwork_mode = "public"', "open", "none"),
        ('[environment]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "public"', "none", "open"),
        ('[agent]\nnetwork_mode = "no-network"', "none", "open"),
        ('[environment]\nnetwork_mode = "allowlist"', "allowlist", "allowlist"),
    ],
)
def test_each_phase_has_its_own_network_else_that_of_the_environment(make, toml, agent, verify):
    task = only(make(toml))

    assert (task.sandbox.network, task.verify.network) == (agent, verify)


def test_a_network_of_the_flags_is_for_tasks_that_name_none(make):
    said = TaskDefaults(batch="b", model="m", sandbox=SandboxRequest(network="none"), network_said=True)

    silent, loud = only(make(), said), only(make('environment.network_mode = "public"', "loud"), said)

    assert (silent.sandbox.network, silent.verify.network) == ("none", "none")
    assert (loud.sandbox.network, loud.verify.network) == ("open", "open")


@pytest.mark.parametrize(
    ("sizes", "memory_mb", "work_mb"),
    [
        ('memory = "2G"\nstorage = "10G"', 2_048, 2_048),
        ('memory = "512M"\nstorage = "100m"', 512, 100),
        ("memory_mb = 4096\nstorage_mb = 1024", 4_096, 1_024),
        ('memory = "2G"\nmemory_mb = 2048', 2_048, 256),
        ("storage_mb = 10240", 1_024, 1_024),
    ],
)
def test_sizes_are_read_in_both_spellings_and_a_work_tree_in_memory_gets_no_more_than_that(
    make, sizes, memory_mb, work_mb
):
    sandbox = only(make(f"[environment]\n{sizes}")).sandbox

    assert (sandbox.memory_mb, sandbox.work_mb) == (memory_mb, work_mb)


def test_a_long_instruction_is_given_whole_with_the_room_it_needs(make):
    text = "word " * 9_000

    [parcel] = harbor.read(make(**{"instruction.md": text}), DEFAULTS)

    assert "instructions" in parcel.envelope.task.description
    assert parcel.envelope.task.context_budget_tokens == 32_000
    assert parcel.blobs[parcel.envelope.instructions.ref] == text.encode()


def test_an_image_of_the_flags_is_for_tasks_that_name_none(make):
    given = TaskDefaults(batch="b", model="m", sandbox=SandboxRequest(image="mine:1"))
    built = make(environment__Dockerfile="FROM debian:12\n")
    named = make('environment.docker_image = "theirs:1"', "named")

    assert [only(folder, given).sandbox.image for folder in (built, named)] == ["mine:1", "theirs:1"]
    assert only(built, given).sandbox.work_dir is None


def test_marks_of_benchmark_texts_are_not_shown_to_the_agent(make):
    text = "<!-- acme-canary GUID 123 -->\n# canary\n\nDo it.\n# not the canary\n"

    assert only(make(**{"instruction.md": text})).task.description == "Do it.\n# not the canary"


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ('schema_version = "2.0"', "schema_version: '2.0' is not understood"),
        ('[[steps]]\nname = "a"', "steps: tasks of several steps"),
        ('multi_step_reward_strategy = "mean"', "multi_step_reward_strategy: "),
        ('artifacts = ["/tmp/x"]', "artifacts: '/tmp/x' cannot be collected"),
        ('artifacts = [{source = "a"}]', "artifacts: {'source': 'a'} cannot be collected"),
        ('agent.user = "root"', "agent.user: "),
        ("verifier.user = 0", "verifier.user: "),
        ('verifier.environment_mode = "separate"', "verifier.environment_mode: "),
        ("[verifier.environment]\ncpus = 1", "verifier.environment: "),
        ('[[verifier.collect]]\ncommand = "x"', "verifier.collect: "),
        ('verifier.env.KEY = "${KEY}"', "verifier.env.KEY: "),
        ('environment.env.KEY = "${KEY}"', "environment.env.KEY: "),
        ('environment.os = "Windows"', "environment.os: "),
        ("environment.gpus = 1", "environment.gpus: "),
        ('environment.gpu_types = ["H100"]', "environment.gpu_types: "),
        ('environment.tpu = {type = "v6e", topology = "2x4"}', "environment.tpu: "),
        ('environment.skills_dir = "/skills"', "environment.skills_dir: "),
        ('[[environment.mcp_servers]]\nname = "x"', "environment.mcp_servers: "),
        ('environment.healthcheck.command = "true"', "environment.healthcheck: "),
        ('environment.allowed_hosts = ["a.b"]', "environment.allowed_hosts: needs network_mode"),
        (
            '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["1.1.1.0/24"]',
            "agent.allowed_hosts: '1.1.1.0/24' must be a name",
        ),
        ("agent.timeout_sec = 3601", "agent.timeout_sec: "),
        ("agent.timeout_sec = 0", "agent.timeout_sec: "),
        ("verifier.timeout_sec = 7200.0", "verifier.timeout_sec: "),
        ('verifier.timeout_sec = "60"', "verifier.timeout_sec: "),
        ("environment.memory_mb = 4", "environment.memory_mb: "),
        ('environment.memory = "2 apples"', "environment: memory must be a size"),
        ('environment = {memory = "2G", memory_mb = 1024}', "environment: memory and memory_mb contradict"),
        ('environment.docker_image = "-rm"', "environment.docker_image: "),
        ('environment.workdir = "/proc/x"', "sandbox.work_dir: '/proc/x' belongs to the system"),
        ("environment.memroy_mb = 1", "environment.memroy_mb: there is no such field"),
        ("colour = 1", "colour: there is no such field"),
        ("environment = 1", "environment: "),
        ("a = ", "task.toml: is not valid TOML"),
        ("\xff", "task.toml: is not valid TOML"),
    ],
)
def test_what_cannot_be_had_is_refused_by_its_name(make, toml, sentence):
    [problem] = refused(make(toml))

    assert problem.startswith(f"task: {sentence}"), problem
    assert problem.endswith(".")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"environment__Dockerfile": "FROM x\n"},
            "environment/Dockerfile: images are not built here; build it with",
        ),
        (
            {"environment__docker-compose.yaml": ""},
            "environment/docker-compose.yaml: services are not started",
        ),
        ({"trajectory.json": "{}"}, "trajectory.json: an agent begins afresh"),
        ({"instruction.md": " \n"}, "instruction.md: is empty"),
        ({"instruction.md": b"\xff"}, "instruction.md: is not UTF-8"),
        ({"task.toml": b"\xff"}, "task.toml: is not UTF-8"),
    ],
)
def test_a_file_that_would_have_to_be_acted_on_is_refused_by_its_name(make, files, sentence):
    [problem] = refused(make(**files))

    assert problem.startswith(f"task: {sentence}"), problem


def test_an_image_that_is_to_be_built_is_named_with_the_command_that_builds_it(make):
    folder = make('task.name = "Acme/Two Words"', environment__Dockerfile="FROM debian:12\nWORKDIR /app\n")

    [problem] = refused(folder)

    image = problem.partition('docker_image = "')[2].partition('"')[0]
    assert image.startswith("zubble/acme-two-words:")
    assert f"`docker build -t {image} {folder}/environment`" in problem
    toml = f'task.name = "Acme/Two Words"\nenvironment.docker_image = "{image}"'
    assert only(make(toml, environment__Dockerfile="FROM debian:12\n")).sandbox.image == image


@pytest.mark.parametrize("name", ["instruction.md", "task.toml", "tests/test.sh", "tests/more"])
def test_no_link_is_followed_out_of_a_task(make, tmp_path, name):
    """Whoever made the folder would be sent a file of this machine, through the model or the tests."""
    secret = tmp_path / "secret"
    secret.write_text("a = 1\n")
    folder = make()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)

    assert any("is a link, which is not followed" in problem for problem in refused(folder))


def test_a_folder_of_tests_that_is_a_link_or_missing_or_a_pipe_is_refused(make, tmp_path):
    linked, missing, piped = make(name="linked"), make(name="missing"), make(name="piped")
    (linked / "tests").rename(tmp_path / "elsewhere")
    (linked / "tests").symlink_to(tmp_path / "elsewhere")
    (missing / "tests/test.sh").unlink()
    (missing / "tests").rmdir()
    (piped / "tests/test.sh").unlink()
    os.mkfifo(piped / "tests/test.sh")

    assert refused(linked) == ["linked: tests: is a link, which is not followed."]
    assert refused(missing) == ["missing: tests: is missing."]
    assert refused(piped) == ["piped: tests/test.sh: is not a plain file."]


def test_names_that_are_no_text_are_refused(make, tmp_path):
    odd, folder = make(name="odd"), make(name="folder")
    (odd / "tests" / os.fsdecode(b"a\xff")).write_text("")
    folder.rename(tmp_path / os.fsdecode(b"f\xff"))

    problems = refused(tmp_path)

    assert problems[0].startswith("f\udcff: id: ")
    assert problems[1] == "odd: tests/a\\xff: has a name that is not UTF-8."


def test_tests_are_read_within_a_bound(make, monkeypatch):
    monkeypatch.setattr(harbor, "TESTS_BYTES", 1_000)

    [problem] = refused(make(tests__a="x" * 600, tests__b="x" * 600))

    assert problem == "task: tests: holds more than 1,000 bytes."


def test_a_folder_of_tasks_is_a_batch_and_every_problem_of_every_task_is_said_at_once(make, tmp_path):
    make(name="a")
    make("environment.gpus = 1", "b")
    make("agent.user = 1\nenvironment.tpu = 1", "c")
    (tmp_path / "README.md").write_text("Tasks.\n")
    (tmp_path / "scripts").mkdir()

    problems = refused(tmp_path)

    assert [problem.split(": ")[:2] for problem in problems] == [
        ["b", "environment.gpus"],
        ["c", "agent.user"],
        ["c", "environment.tpu"],
    ]


def test_a_dataset_names_its_tasks_and_their_order(make, tmp_path):
    for name in ("a", "b", "c"):
        make(f'task.name = "org/{name}"', f"folder-{name}")
    dataset = ('[dataset]\nname = "org/set"', 'name = "org/c"\ndigest = "sha256:0"', 'name = "org/a"')
    (tmp_path / "dataset.toml").write_text("\n[[tasks]]\n".join(dataset))

    assert [parcel.envelope.source_id for parcel in harbor.read(tmp_path, DEFAULTS)] == ["org/c", "org/a"]


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ('[[tasks]]\nname = "org/none"', "dataset.toml: there is no folder of the task 'org/none'."),
        ("[[tasks]]\ndigest = 1", "dataset.toml: every entry of [[tasks]] needs a name."),
        ("tasks = 1", "dataset.toml: every entry of [[tasks]] needs a name."),
        ("[dataset]", "dataset.toml names no task."),
        ("=", "dataset.toml: is not valid TOML"),
    ],
)
def test_a_dataset_that_cannot_be_followed_is_refused(make, tmp_path, dataset, sentence):
    make()
    (tmp_path / "dataset.toml").write_text(dataset)

    [problem] = refused(tmp_path)

    assert sentence in problem


def test_two_tasks_of_one_name_are_refused(make, tmp_path):
    make('task.name = "x/y"', "a")
    make('task.name = "x/y"', "b")

    assert refused(tmp_path) == ["b: id: 'x/y' is already used by a."]


def test_a_folder_is_recognised_by_what_is_in_it(make, tmp_path):
    folder = make()
    (tmp_path / "empty").mkdir()

    assert (format_of(folder), format_of(tmp_path)) == ("harbor", "harbor")
    with pytest.raises(BadInput, match="folder without tasks"):
        format_of(tmp_path / "empty")


@pytest.mark.parametrize("backend", ["local", "attached"])
def test_a_backend_without_folders_of_its_own_is_refused_before_anything_runs(make, backend):
    defaults = TaskDefaults(batch="b", model="m", sandbox=SandboxRequest(backend=backend))

    with pytest.raises(BadInput, match=r"task: sandbox: .* (its own image|no file system)"):
        harbor.read(make('environment.network_mode = "no-network"'), defaults)


def test_repeats_share_their_files(make):
    parcels = harbor.read(make(), TaskDefaults(batch="b", model="m", repeats=3))

    assert [parcel.envelope.repeat for parcel in parcels] == [1, 2, 3]
    assert len({id(data) for parcel in parcels for data in parcel.blobs.values()}) == 1
