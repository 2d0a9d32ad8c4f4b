"""What the promises are written with."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from zubble_queue.contracts.sandbox import MIB, CommandResult, Sandbox, SandboxProvider, SandboxSpec, shell

Promise = Callable[[SandboxProvider], Awaitable[None]]
PROMISES: Final[dict[str, Promise]] = {}
"""Every promise by its name."""
KNOWN_GAPS: Final[Mapping[tuple[str, str], str]] = {
    ("local", "read_only_files_cannot_be_changed"): "commands run as the user that owns them",
    ("local", "a_full_work_tree_refuses_and_keeps_what_it_had"): "local does not limit sizes",
    ("local", "the_number_of_processes_is_limited"): "local does not limit processes",
    ("local", "commands_find_the_work_tree_where_the_spec_says"): "local has no file system of its own",
    ("local", "the_files_of_a_check_may_lie_elsewhere"): "local has no file system of its own",
    (
        "local",
        "further_folders_are_empty_and_writable_and_no_part_of_the_work_tree",
    ): "local has no file system of its own",
    ("attached", "read_only_files_cannot_be_changed"): "commands run as the user that owns them",
    ("attached", "a_full_work_tree_refuses_and_keeps_what_it_had"): "the container's sizes are its affair",
    ("attached", "the_number_of_processes_is_limited"): "the container's limits are its affair",
    ("attached", "the_files_of_a_check_may_lie_elsewhere"): "the container's folders are its affair",
    (
        "attached",
        "further_folders_are_empty_and_writable_and_no_part_of_the_work_tree",
    ): "the container's folders are its affair",
}
"""(backend, promise) to the reason why it is not kept."""

PATIENCE_SECONDS: Final = 60.0
_numbers: Final = itertools.count(1)


def promise(function: Promise) -> Promise:
    PROMISES[function.__name__] = function
    return function


def small(**changes: Any) -> SandboxSpec:
    """The spec of a small sandbox with a name of its own."""
    spec = SandboxSpec(
        name=f"conformance-{os.getpid()}-{next(_numbers)}",
        owner=f"conformance-{os.getpid()}",
        work_bytes=32 * MIB,
        tmp_bytes=8 * MIB,
        max_life_seconds=300.0,
    )
    return replace(spec, **changes)


@contextlib.asynccontextmanager
async def opened(provider: SandboxProvider, **changes: Any) -> AsyncIterator[Sandbox]:
    """A small sandbox with a name of its own, destroyed at the end."""
    sandbox = await provider.open(small(**changes))
    try:
        yield sandbox
    finally:
        await sandbox.destroy()


async def run(sandbox: Sandbox, text: str, *, timeout_seconds: float = PATIENCE_SECONDS) -> CommandResult:
    return await sandbox.exec(shell(text, timeout_seconds=timeout_seconds))


async def output(sandbox: Sandbox, text: str) -> str:
    """Standard output of a shell command that must succeed."""
    result = await run(sandbox, text)
    assert result.ok, result
    return result.stdout.decode(errors="surrogateescape")


async def exists(sandbox: Sandbox, name: str) -> bool:
    """Whether a file of the work tree is there and not empty."""
    return any(entry.path == name and entry.size for entry in await sandbox.list())


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something that must come true."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():  # noqa: ASYNC110 - what is waited for happens in another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


@contextlib.contextmanager
def refused(*kinds: type[Exception]) -> Any:
    """The block must raise one of these."""
    try:
        yield
    except kinds:
        return
    raise AssertionError(f"expected {' or '.join(kind.__name__ for kind in kinds)}")
