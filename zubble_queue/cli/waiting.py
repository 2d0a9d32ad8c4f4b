"""Waiting for a batch: progress on standard error, and Ctrl-C that detaches instead of destroying."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from zubble_queue.cli.report import Report, usd
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.record import BatchView
from zubble_queue.errors import StoreUnavailable

if TYPE_CHECKING:
    from zubble_queue.stores.redis import RedisStore

PATIENCE_SECONDS: Final = 60.0
"""How long a store may be silent before a waiting command gives up; the batch goes on without it."""
_LOOK_SECONDS: Final = 1.0
_LINE_SECONDS: Final = 10.0


class Progress(Protocol):
    """Shows how far something is."""

    def update(self, done: int, total: int, text: str = "") -> None: ...


def ended(view: BatchView) -> bool:
    """Whether every task has its seal."""
    return view.state != "loading" and view.sealed >= view.total


def held_at_a_ceiling(view: BatchView) -> bool:
    """Whether nothing of it goes on until somebody raises a ceiling."""
    idle = not view.states.get("running", 0)
    return view.ceiling_reached is not None and view.on_ceiling == "pause" and idle


async def until_sealed(
    store: RedisStore,
    batch: str,
    *,
    stop: asyncio.Event,
    progress: Progress,
    look_after: Callable[[], None] = lambda: None,
) -> BatchView | None:
    """The batch when every task is sealed or waits at a ceiling, or None when `stop` came first.

    Args:
        store: Where the batch is.
        batch: Its name.
        stop: Set when the user wants to leave.
        progress: Told at every change.
        look_after: Called at least once a second; for the local workers.

    Raises:
        UnknownName: There is no such batch.
        StoreUnavailable: The store has not answered for a minute.
    """
    answered = time.monotonic()
    while not stop.is_set():
        look_after()
        try:
            view = await store.batch(batch)
            answered = time.monotonic()
            progress.update(view.sealed, view.total, _text(view))
            if ended(view) or held_at_a_ceiling(view):
                return view
            await _first(store.wait_for_change(batch, _LOOK_SECONDS), stop)
        except StoreUnavailable:
            if time.monotonic() - answered > PATIENCE_SECONDS:
                raise
            await _first(asyncio.sleep(_LOOK_SECONDS), stop)
    return None


async def _first(waiting: Any, stop: asyncio.Event) -> None:
    """Wait for one thing or for the user; what the thing raises is raised."""
    tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set; a second Ctrl-C interrupts as usual."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with contextlib.suppress(NotImplementedError):  # Windows: there Ctrl-C interrupts at once
        loop.add_signal_handler(signal.SIGINT, on_signal)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        yield stop
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar on a terminal; a line now and then where standard error is a file."""
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bar(bars, title)


class _Bar:
    def __init__(self, bars: Any, title: str) -> None:
        self._bars, self._bar = bars, bars.add_task(title, total=None, text="")

    def update(self, done: int, total: int, text: str = "") -> None:
        self._bars.update(self._bar, completed=done, total=total, text=text)


class _Lines:
    """Says nothing about what takes less than the first interval."""

    def __init__(self, title: str) -> None:
        self._title, self._due, self._said = title, time.monotonic() + _LINE_SECONDS, ""

    def update(self, done: int, total: int, text: str = "") -> None:
        line = f"{self._title}: {done} of {total}{f', {text}' if text else ''}"
        if time.monotonic() >= self._due and line != self._said:
            Report.current.note(line)
            self._said, self._due = line, time.monotonic() + _LINE_SECONDS


def _text(view: BatchView) -> str:
    verified = view.outcomes.get("verified", 0)
    running = view.states.get("running", 0)
    asking = view.states.get("awaiting_human", 0)
    waiting = f", {asking} wait for a person" if asking else ""
    return f"{verified} verified, {running} running{waiting}, {usd(view.usage.spend_micro_usd / MICRO)}"
