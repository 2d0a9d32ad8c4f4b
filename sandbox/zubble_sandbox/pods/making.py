"""Making a sandbox pod: created, filled, started, reached."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import box
from zubble_sandbox.line import LineLost
from zubble_sandbox.pods import remembering
from zubble_sandbox.pods.api import Api
from zubble_sandbox.pods.filling import Filling
from zubble_sandbox.pods.keeper import Keeper
from zubble_sandbox.pods.layout import Layout
from zubble_sandbox.pods.manifests import (
    BOX_CONTAINER,
    FILL_CONTAINER,
    SOCKET,
    START_SECONDS,
    Ticket,
    sandbox_pod,
)
from zubble_sandbox.pods.options import PodOptions
from zubble_sandbox.pods.reaching import Place
from zubble_sandbox.pods.waiting import running, started
from zubble_sandbox.records import new_token
from zubble_sandbox.secret import key_of, new_secret

LINE_SECONDS: Final = 60.0
"""How long a supervisor waits for a lost line to be opened again."""
_FILL_TRIES: Final = 3


def ticket(spec: SandboxSpec, options: PodOptions) -> Ticket:
    """For one pod. Raises JobError when no image is named, or one that may change."""
    image = spec.image or options.image
    if image is None:
        raise JobError("No image is named: by the task, or as image in [sandboxes.pod].")
    if options.require_digest and "@sha256:" not in image:
        raise JobError(
            f"The image {image!r} must be pinned as name@sha256:…; require_digest = false in [sandboxes.pod] "
            "allows tags."
        )
    token, secret = new_token(), new_secret()
    linger = max(spec.linger_seconds, LINE_SECONDS)
    command = ("supervise", "--listen", SOCKET, "--key", key_of(secret), "--linger", f"{linger:g}", token)
    return Ticket(token, secret, command, image, int(time.time() + spec.max_life_seconds + START_SECONDS))


async def make(
    spec: SandboxSpec, layout: Layout, options: PodOptions, keeper: Keeper, made: Ticket
) -> tuple[Place, Mapping[str, str]]:
    """The pod once its supervisor runs, and its image's environment.

    Raises SandboxUnavailable; the pod, if there is one, is the caller's to remove.
    """
    api, owner = await keeper.api(), await keeper.owner()
    await api.create("pods", sandbox_pod(spec, layout, options, owner, made))
    deadline = time.monotonic() + options.start_seconds
    await started(api, made.token, FILL_CONTAINER, options.start_seconds)
    program: Callable[[str], Path] | None = None if options.box_image else box.binary
    environment = await _filled(api, made.token, Filling(spec, layout, program), deadline)
    if spec.linger_seconds:
        await api.patch("pods", made.token, remembering.environment_note(environment))
    pod = await started(api, made.token, BOX_CONTAINER, max(1.0, deadline - time.monotonic()))
    return Place.of(api, pod), environment


async def _filled(api: Api, name: str, filling: Filling, deadline: float) -> dict[str, str]:
    """Over a stream that may break: everything is then sent again."""
    why = "it took too long"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
            for _ in range(_FILL_TRIES):
                try:
                    line = await api.exec_line(name, FILL_CONTAINER, filling.command)
                except SandboxUnavailable as error:
                    why = str(error)
                    continue
                try:
                    return await filling.pour(line)
                except LineLost as error:
                    why = f"{error}. {line.complaint()}".strip()
                finally:
                    await line.close()
                if not running(await api.get("pods", name), FILL_CONTAINER):
                    break
    raise SandboxUnavailable(f"The pod {name} could not be filled: {why.rstrip('.')}.")
