"""Tasks that run in a container or pod that is there: by flags, by their line, and what is refused."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from zubble_queue.cli import main
from zubble_queue.cli.defaults import sandbox_request, task_defaults
from zubble_queue.contracts.envelope import SandboxRequest
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import BadInput
from zubble_queue.formats import envelopes


@pytest.fixture
def read(tmp_path):
    """The envelope of a task line, and what is wrong with it."""

    def read(line, **flags):
        path = tmp_path / "tasks.jsonl"
        path.write_text(json.dumps({"id": "1", "description": "x", "verify": {"command": "true"}, **line}))
        defaults = task_defaults(batch="b", model="m", budget=LoopBudget(), **flags)
        return next(iter(envelopes.read(path, defaults))).envelope

    return read


@pytest.mark.parametrize(
    ("backend", "container", "meant"),
    [
        ("docker", "dev-1", "dev-1"),
        ("attached", "dev-1", "dev-1"),
        (None, "team/pod/main", "team/pod/main"),
        ("kubectl", "team/pod", "team/pod"),
        ("kubectl", "pod", "default/pod"),
    ],
)
def test_the_words_of_docker_and_kubectl_mean_an_attached_container(backend, container, meant):
    asked = sandbox_request(backend, container=container)
    assert (asked.backend, asked.container) == ("attached", meant)


def test_docker_without_a_container_makes_its_own():
    asked = sandbox_request("docker")
    assert (asked.backend, asked.container) == ("docker", None)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--env", "kubectl"], "--env kubectl needs --container NAMESPACE/POD"),
        (["--sandbox", "bubblewrap", "--container", "x"], "--container is for --sandbox attached"),
        (["--container", "-v /:/host"], "--container must be the name of a container"),
        (["--env-container=a/b/c/d"], "--container must be the name of a container"),
        (
            ["--env", "docker", "--env-container", "x", "--allow-host", "a.example"],
            "--sandbox attached: an attached container has its own image, network and folders.",
        ),
    ],
)
def test_what_cannot_be_attached_to_is_one_sentence(flags, problem, capsys, tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_text("{}")
    assert main(["batch", "submit", str(file), "--model", "m", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith(problem), said
    assert said.count("\n") == 1


def test_a_container_is_checked_where_the_agent_left_it(read):
    envelope = read({}, sandbox="attached", container="dev-1")
    assert envelope.verify.location == "environment"
    assert read({"sandbox": {"backend": "attached"}}).verify.location == "environment"
    assert read({}).verify.location == "copy"


@pytest.mark.parametrize(
    "line",
    [
        {"verify": {"command": "true", "location": "environment"}},
        {"sandbox": {"backend": "attached"}, "verify": {"command": "true", "location": "copy"}},
        {"sandbox": {"backend": "attached", "image": "debian:12"}},
        {"sandbox": {"backend": "attached"}, "verify": {"command": "true", "network": "allowlist"}},
        {"sandbox": {"backend": "docker", "container": "dev-1"}},
        {"sandbox": {"backend": "attached", "container": "/etc"}},
    ],
)
def test_a_line_that_asks_for_what_cannot_be_is_refused(line, read):
    with pytest.raises(BadInput):
        read(line)


@pytest.mark.parametrize("forged", [{"image": "x"}, {"network": "allowlist"}, {"scratch": ["/logs"]}])
def test_a_forged_request_for_more_is_not_read(forged):
    with pytest.raises(ValidationError, match="its own image, network and folders"):
        SandboxRequest.model_validate({"backend": "attached", "container": "dev-1", **forged}, strict=False)
