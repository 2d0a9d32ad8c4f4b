"""What local workers need of this machine, looked at before a batch is created for them."""

from __future__ import annotations

import asyncio
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from zubble_queue import sandboxes
from zubble_queue.contracts.sandbox import SandboxSpec, Strength, holds
from zubble_queue.errors import CannotStart, JobError, SandboxUnavailable

if TYPE_CHECKING:
    from zubble_queue.contracts.envelope import SandboxRequest
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.contracts.sandbox import SandboxProvider
    from zubble_queue.settings import Settings

STRONGER: Final[Mapping[Strength, str]] = {
    "none": "Nothing holds a command in: use bubblewrap, docker or pod.",
    "namespaces": "For 'limits', let the worker make control groups: start it as root, or by systemd with "
    "Delegate=yes.",
    "limits": "For 'kernel', use docker or pod with gVisor or Kata.",
    "kernel": "",
}
"""What raises the strength of a sandbox that has no more than this."""
ON_THIS_MACHINE: Final = frozenset({"bubblewrap", "docker"})
"""Backends that open a sandbox in less than a second."""
_ANSWER_SECONDS: Final = 10.0
_LOOK_BYTES: Final = 512


async def check_sandboxes(settings: Settings, asked: Iterable[SandboxRequest]) -> None:
    """Every sandbox must be allowed here, work, be strong enough and keep its network.

    Else the tasks would wait for ever, or be sealed invalid.

    Raises:
        CannotStart: One that is not, with what to do.
    """
    by_name: dict[str, list[SandboxRequest]] = {}
    for request in asked:
        by_name.setdefault(request.backend, []).append(request)
    for name, requests in sorted(by_name.items()):
        if name not in settings.worker.sandboxes:
            raise CannotStart(
                f"Sandbox {name!r} is not allowed on this machine: add it to worker.sandboxes in zubble.toml "
                "or ZUBBLE_WORKER__SANDBOXES."
            )
        _check_granted(settings, requests)
        provider = sandboxes.provider(settings, name)
        probe = await provider.probe()
        if not probe.available:
            raise CannotStart(f"Sandbox {name!r} does not work here: {' '.join(probe.problems)}")
        for demanded in sorted({request.min_strength for request in requests}):
            if not holds(probe.strength, demanded):
                raise CannotStart(
                    f"Sandbox {name!r} has strength {probe.strength!r} here, and {demanded!r} is demanded. "
                    f"{STRONGER[probe.strength]}"
                )
        for network in sorted({request.network for request in requests} - set(probe.networks)):
            kept = ", ".join(probe.networks)
            raise CannotStart(f"Sandbox {name!r} cannot keep network {network!r}; it has {kept}.")
        if name in ON_THIS_MACHINE:
            await _check_images(provider, requests)


async def _check_images(provider: SandboxProvider, requests: Iterable[SandboxRequest]) -> None:
    """Each image must be here and have the folders asked for: by opening a sandbox for it."""
    wanted = {(request.image, request.work_dir, request.scratch) for request in requests if request.image}
    for image, work_dir, scratch in sorted(wanted, key=str):
        spec = SandboxSpec("check", f"check-{os.getpid()}", image=image, work_dir=work_dir, scratch=scratch)
        try:
            box = await provider.open(spec)
        except (JobError, SandboxUnavailable) as refused:
            raise CannotStart(str(refused)) from refused
        await box.destroy()


def _check_granted(settings: Settings, requests: Iterable[SandboxRequest]) -> None:
    granted = {"none", *settings.worker.networks}
    for network in sorted({request.network for request in requests} - granted):
        raise CannotStart(
            f"Network {network!r} is not allowed on this machine: add it to worker.networks in zubble.toml "
            "or ZUBBLE_WORKER__NETWORKS."
        )


def default_workers() -> int:
    """Agents wait most of the time, so a worker serves many; a second one where there are cores for it."""
    return 1 if (os.cpu_count() or 1) <= 2 else 2


async def check_endpoints(models: Mapping[str, ModelConfig]) -> None:
    """Each endpoint must answer, and not with a web page. No key is sent, so any other answer will do.

    Raises:
        CannotStart: One that does not; what to look at.
    """
    for name, config in models.items():
        if config.base_url is None:
            continue
        if problem := await asyncio.to_thread(endpoint_problem, config.base_url):
            raise CannotStart(f"Model {name!r}: {problem}")


def key_problems(models: Mapping[str, ModelConfig]) -> Iterator[tuple[str, str]]:
    """Models whose key is not where their table says; a worker does not offer them."""
    for name, config in sorted(models.items()):
        if config.api_key_env is not None and not os.environ.get(config.api_key_env):
            yield name, f"set the environment variable {config.api_key_env}."
        if config.api_key_file is not None and not os.access(config.api_key_file, os.R_OK):
            yield name, f"make the file {config.api_key_file} readable."


def endpoint_problem(base_url: str) -> str:
    """What is wrong with an endpoint, as one sentence; empty if nothing is."""
    url = f"{base_url}/models"
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310  # settings allow http(s) only
            return _web_page(base_url, answer.headers.get_content_type(), answer.read(_LOOK_BYTES))
    except urllib.error.HTTPError as refused:
        with refused:
            return _web_page(base_url, refused.headers.get_content_type(), refused.read(_LOOK_BYTES))
    except (OSError, http.client.HTTPException) as silent:
        reason = getattr(silent, "reason", None) or silent
        return f"the endpoint {base_url} does not answer: {getattr(reason, 'strerror', None) or reason}."


def _web_page(base_url: str, content_type: str, beginning: bytes) -> str:
    if content_type == "text/html" or beginning.lstrip()[:1] == b"<":
        return f"the endpoint {base_url} answers with a web page; its URL usually ends with /v1."
    return ""
