"""Which backend is named where the container around us forbids one."""

from __future__ import annotations

import pytest

from zubble_queue.cli import inside

REFUSED = "/usr/bin/bwrap: No permissions to create new namespace"


@pytest.fixture(params=[".dockerenv", ".containerenv"])
def container(request, tmp_path, monkeypatch):
    """Looks like one of Docker's or Podman's."""
    monkeypatch.setattr(inside, "_MARKS", (str(tmp_path / ".dockerenv"), str(tmp_path / ".containerenv")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / request.param).touch()
    return tmp_path / request.param


def test_in_a_container_docker_and_pods_are_named_and_what_would_let_it_work(container):
    todo = inside.instead("bubblewrap", [REFUSED])
    assert "`docker`" in todo
    assert "`pod`" in todo
    assert "--security-opt seccomp=unconfined --security-opt systempaths=unconfined" in todo


def test_in_a_pod_pods_are_named(container, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert "ZUBBLE_WORKER__SANDBOXES=pod" in inside.instead("bubblewrap", [REFUSED])


@pytest.mark.parametrize(
    ("backend", "problem"), [("docker", REFUSED), ("bubblewrap", "bwrap is not installed.")]
)
def test_what_the_container_does_not_forbid_has_its_own_advice(container, backend, problem):
    assert inside.instead(backend, [problem]) == ""


def test_outside_of_a_container_it_has_its_own_advice(container):
    container.unlink()
    assert inside.instead("bubblewrap", [REFUSED]) == ""
