"""Waiting for a pod, and telling what became of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.pods.api import Api, Object
from zubble_sandbox.pods.manifests import BOX_CONTAINER

_FIRST_PAUSE_SECONDS: Final = 0.1
_LAST_PAUSE_SECONDS: Final = 3.0
_GROWTH: Final = 1.3
_HOPELESS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "InvalidImageName",
        "RunContainerError",
    }
)
_PATIENT: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
"""Registries fail in passing; the wait for a start ends these, too."""


async def started(api: Api, name: str, container: str, seconds: float) -> Object:
    """The pod once a container of it runs.

    Raises:
        SandboxUnavailable: it has failed, was deleted, or took too long; the sentence says which and why.
    """
    return await _awaited(api, name, seconds, lambda pod: running(pod, container), _why_never)


async def ended(api: Api, name: str, seconds: float) -> Object:
    """The pod once all its containers have ended. Raises SandboxUnavailable as `started` does."""
    return await _awaited(api, name, seconds, _is_over, _why_stuck)


async def _awaited(
    api: Api,
    name: str,
    seconds: float,
    reached: Callable[[Object], bool],
    why_never: Callable[[Object], str | None],
) -> Object:
    pause, pod = _FIRST_PAUSE_SECONDS, {}
    try:
        async with asyncio.timeout(seconds):
            while True:
                pod = await api.get("pods", name)
                if reached(pod):
                    return pod
                if (why := why_never(pod)) is not None:
                    raise SandboxUnavailable(f"The pod {name} cannot do its work: {why}.")
                await asyncio.sleep(pause)
                pause = min(pause * _GROWTH, _LAST_PAUSE_SECONDS)
    except TimeoutError:
        why = _why_waiting(pod) or "nothing was said about why"
        raise SandboxUnavailable(f"The pod {name} was not ready after {seconds:g} seconds: {why}.") from None


def running(pod: Object, container: str) -> bool:
    return any(
        status["name"] == container and "running" in status.get("state", {}) for status in _statuses(pod)
    )


def restarts(pod: Object, container: str) -> int:
    return sum(int(status.get("restartCount", 0)) for status in _statuses(pod) if status["name"] == container)


def exit_code(pod: Object) -> int | None:
    """Of its only container; None when that is not known."""
    for status in pod.get("status", {}).get("containerStatuses") or ():
        if (ended := status.get("state", {}).get("terminated")) is not None:
            return int(ended["exitCode"])
    return None


def fate(pod: Object | None) -> str:
    """What became of a pod whose sandbox is gone, as the end of a sentence."""
    if pod is None:
        return "its pod was deleted"
    status = pod.get("status", {})
    for container in _statuses(pod):
        if container["name"] != BOX_CONTAINER:
            continue
        if (ended := container.get("state", {}).get("terminated")) is None:
            continue
        if ended.get("reason") == "OOMKilled":
            return (
                "the kubelet killed it as a whole when its memory ran out "
                "(nodes with singleProcessOOMKill kill the process only)"
            )
        return f"its container ended ({ended.get('reason', 'unknown')}, exit code {ended.get('exitCode')})"
    reason, message = status.get("reason"), status.get("message")
    if reason or message:
        return f"its pod was ended ({': '.join(str(part).rstrip('.') for part in (reason, message) if part)})"
    if pod.get("metadata", {}).get("deletionTimestamp"):
        return "its pod is being deleted"
    return f"its pod is {status.get('phase', 'in no known phase')}"


def _is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _why_never(pod: Object) -> str | None:
    if pod.get("metadata", {}).get("deletionTimestamp") or _is_over(pod):
        return fate(pod)
    return _why_stuck(pod)


def _why_stuck(pod: Object) -> str | None:
    return next((told for reason, told in _waiting(pod) if reason in _HOPELESS), None)


def _why_waiting(pod: Object) -> str | None:
    if found := next((told for reason, told in _waiting(pod) if reason in _PATIENT), None):
        return found
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"no node takes it ({str(condition.get('message', '')).rstrip('.')})"
    return next((told for _, told in _waiting(pod)), None)


def _waiting(pod: Object) -> Iterator[tuple[str, str]]:
    for status in _statuses(pod):
        waiting: dict[str, Any] | None = status.get("state", {}).get("waiting")
        if waiting:
            reason = str(waiting.get("reason", "unknown"))
            message = str(waiting.get("message") or "").strip().rstrip(".")
            yield reason, f"{reason}: {message}" if message else reason


def _statuses(pod: Object) -> Iterator[Any]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()
