"""Sandboxes that are open before anybody asks: single-use, of the kinds that were asked for lately, few.

A sandbox of the pool is one that the inner provider opened, under a name of its own. It is handed out once,
under the name of whoever asked, and destroyed by them like any other. Nothing of a task reaches it before.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol, cast

from zubble_queue.contracts.sandbox import Probe, Sandbox, SandboxProvider, SandboxSpec
from zubble_queue.errors import JobError, SandboxUnavailable

MAX_AGE_SECONDS: Final = 300.0
"""How long one may wait; also how long a kind is kept warm that nobody asks for any more."""
_KINDS_REMEMBERED: Final = 1_024
"""Of those with files of their own, which are opened ahead from the second time on."""

Kind = tuple[Any, ...]
"""All of a spec but its name."""


class Renamable(Sandbox, Protocol):
    """A sandbox that can be handed over to somebody else before it was used."""

    async def hand_over(self, spec: SandboxSpec) -> None:
        """Become the sandbox of a spec that differs in its name, and in its life, which is no longer.

        Raises SandboxUnavailable when it has ended meanwhile.
        """


@dataclass(slots=True)
class _Shelf:
    """Sandboxes of one kind, oldest first."""

    number: int
    """In the order in which kinds came up."""
    spec: SandboxSpec
    asked_at: float = 0.0
    ready: list[tuple[float, Renamable]] = field(default_factory=list)
    """When each was opened."""


class WarmProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider` in front of another one.

    It belongs to one event loop. Closing it destroys what is open ahead; after that it opens as the other
    one does.

    Args:
        inner: What opens them; its sandboxes are `Renamable`.
        size: The most sandboxes that are open ahead, of all kinds together.
        max_age_seconds: How long one may wait to be asked for.
    """

    def __init__(
        self, inner: SandboxProvider, size: int, *, max_age_seconds: float = MAX_AGE_SECONDS
    ) -> None:
        self._inner, self._size, self._max_age = inner, size, max_age_seconds
        self._shelves: dict[Kind, _Shelf] = {}
        self._seen: dict[int, None] = {}
        self._numbers, self._kinds = itertools.count(1), itertools.count(1)
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def name(self) -> str:
        return self._inner.name

    async def probe(self) -> Probe:
        return await self._inner.probe()

    async def attach(self, handle: str) -> Sandbox:
        return await self._inner.attach(handle)

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        return await self._inner.reap(keep_owners=keep_owners)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        kind = _kind(spec)
        box = await self._warm(kind, spec) or await self._inner.open(spec)
        self._ask(kind, spec)
        return box

    async def _warm(self, kind: Kind, spec: SandboxSpec) -> Sandbox | None:
        """One that is open and well, under its new name."""
        while (box := self._taken(kind)) is not None:
            try:
                await box.hand_over(spec)
            except SandboxUnavailable:
                await box.destroy()
            except BaseException:
                self._let_go(box)
                raise
            else:
                return box
        return None

    async def aclose(self) -> None:
        """Destroy all that are open ahead; none is opened ahead any more."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        for shelf in self._shelves.values():
            for _, box in shelf.ready:
                self._let_go(box)
        self._shelves.clear()
        await asyncio.gather(*self._leaving)

    def _taken(self, kind: Kind) -> Renamable | None:
        shelf = self._shelves.get(kind)
        return shelf.ready.pop(0)[1] if shelf is not None and shelf.ready else None

    def _ask(self, kind: Kind, spec: SandboxSpec) -> None:
        """Remember that this kind is wanted, from the second time on when it holds files of one task.

        What is opened in a container of somebody else is not: nothing is left there that nobody asked for.
        """
        if self._closed or spec.container is not None or not self._is_wanted(kind, spec):
            return
        shelf = self._shelves.pop(kind, None) or _Shelf(next(self._kinds), spec)
        shelf.asked_at = time.monotonic()
        self._shelves[kind] = shelf  # the kind that was asked for last is the last one
        self._changed.set()
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep())

    def _is_wanted(self, kind: Kind, spec: SandboxSpec) -> bool:
        if not spec.readonly_files or kind in self._shelves:
            return True
        known = hash(kind) in self._seen
        self._seen[hash(kind)] = None
        if len(self._seen) > _KINDS_REMEMBERED:
            self._seen.pop(next(iter(self._seen)))
        return known

    async def _keep(self) -> None:
        """Open what is missing, one at a time, and destroy what is too old or too many."""
        while True:
            self._changed.clear()
            self._retire()
            shelf = self._lacking()
            if shelf is not None:
                await self._fill(shelf)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_expiry()):
                    await self._changed.wait()

    async def _fill(self, shelf: _Shelf) -> None:
        life = shelf.spec.max_life_seconds + self._max_age
        spec = replace(shelf.spec, name=f"warm-{next(self._numbers)}", max_life_seconds=life)
        try:
            box = await self._inner.open(spec)
        except (SandboxUnavailable, JobError):
            self._shelves.pop(_kind(shelf.spec), None)  # whoever asks next hears why
        else:
            shelf.ready.append((time.monotonic(), cast("Renamable", box)))

    def _retire(self) -> None:
        oldest = time.monotonic() - self._max_age
        for kind, shelf in list(self._shelves.items()):
            if shelf.asked_at <= oldest:
                del self._shelves[kind]
                self._shrink(shelf, [])
        for kind, shelf in self._shelves.items():
            fresh = [each for each in shelf.ready if each[0] > oldest]
            self._shrink(shelf, fresh[-room:] if (room := self._room(kind)) else [])

    def _shrink(self, shelf: _Shelf, kept: list[tuple[float, Renamable]]) -> None:
        for each in shelf.ready:
            if each not in kept:
                self._let_go(each[1])
        shelf.ready = kept

    def _room(self, kind: Kind) -> int:
        """How many of a kind there should be: those asked for last share the room, the others have none."""
        latest = sorted(list(self._shelves.items())[-self._size :], key=lambda item: item[1].number)
        place = next((place for place, (other, _) in enumerate(latest) if other == kind), None)
        return 0 if place is None else self._size // len(latest) + (place < self._size % len(latest))

    def _lacking(self) -> _Shelf | None:
        for kind in reversed(self._shelves):
            if len(self._shelves[kind].ready) < self._room(kind):
                return self._shelves[kind]
        return None

    def _seconds_to_expiry(self) -> float | None:
        times = [shelf.asked_at for shelf in self._shelves.values()]
        times += [opened for shelf in self._shelves.values() for opened, _ in shelf.ready]
        return max(0.0, min(times) + self._max_age - time.monotonic()) if times else None

    def _let_go(self, box: Sandbox) -> None:
        leaving = asyncio.create_task(box.destroy())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)


def _kind(spec: SandboxSpec) -> Kind:
    values = (getattr(spec, each.name) for each in fields(spec) if each.name != "name")
    return tuple(tuple(sorted(value.items())) if isinstance(value, Mapping) else value for value in values)
