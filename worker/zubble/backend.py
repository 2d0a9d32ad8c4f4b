"""The drop-in back-end of a benchmark harness: a function in place of one call of a model (Z28)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zubble.agent import Agent
from zubble.environments import docker_env, sandboxed_env
from zubble.journal import Journal
from zubble.models import openai_model
from zubble.protocols import RepairProtocol
from zubble_queue.errors import BadInput

Generate = Callable[..., tuple[str, None, dict[str, Any]]]
"""gen(messages, timeout, kwargs, maxtok=4000, stop=None) -> (text, None, perf)."""


def make_backend(
    via: str,
    model: str,
    base: str,
    container: str | None = None,
    *,
    work_dir: str | None = None,
    verify: str | None = None,
    report_path: str | None = None,
    journal_dir: str | None = None,
    api_key_env: str | None = None,
) -> Generate:
    """A function that lets an agent work where a harness expects one generation.

    Args:
        via: "zubble".
        model: The model's name at the endpoint.
        base: The endpoint, as in `http://127.0.0.1:8000/v1`.
        container: A container, or a pod as NAMESPACE/POD, to work in; without one a fresh sandbox each time.
        work_dir: Where commands begin in the container.
        verify: A command that exits with 0 when the work is done; it is run where the commands run.
        report_path: Where the agent is to leave its report; that of RepairProtocol where it is left out.
        journal_dir: The folder that keeps the trial journal; none is kept where it is left out.
        api_key_env: The environment variable that holds the endpoint's key.

    Returns:
        gen(messages, timeout, kwargs, maxtok=4000, stop=None) -> (text, None, perf). The text is the report.

    Raises:
        BadInput: One sentence per argument that cannot be used.
    """
    if via != "zubble":
        raise BadInput([f"via must be 'zubble', not {via!r}."])
    protocol = RepairProtocol() if report_path is None else RepairProtocol(report_path)
    env = docker_env(container, *filter(None, [work_dir])) if container else sandboxed_env()
    chosen = openai_model(model, base, api_key_env=api_key_env)

    def gen(
        messages: Sequence[Mapping[str, str]],
        timeout: float,
        kwargs: Mapping[str, Any] | None = None,
        maxtok: int = 4_000,
        stop: Sequence[str] | None = None,
    ) -> tuple[str, None, dict[str, Any]]:
        journal = None if journal_dir is None else Journal(journal_dir)
        agent = Agent(chosen, env, protocol, journal, kwargs, verify=verify, stop=stop or ())
        result = agent.run_task(messages, timeout, maxtok)
        return result.text, None, result.perf

    return gen
