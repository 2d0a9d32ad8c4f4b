"""A model that plays a script in the worker's own process: no endpoint, no HTTP, the same promises."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import OperatorError
from zubble_worker.models.assembly import Reported
from zubble_worker.models.configured import ConfiguredModel
from zubble_worker.models.failure import TryFailed, html_failure, http_failure
from zubble_worker.models.performance import Playback, count_prompt_tokens, perform
from zubble_worker.models.request import stop_sequences
from zubble_worker.models.script import Cue, Prompt, Script, Tries
from zubble_worker.models.scripted_reply import INVALID_UTF8, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zubble_queue.contracts.model import CallOptions, Message, Reply, StreamWatcher
    from zubble_worker.models.assembly import Assembly
    from zubble_worker.models.performance import Performance, Piece

_REMEMBERED_CALLS: Final = 1_000
_DEFAULT: Final = {"backend": "scripted", "script": "-", "model": "scripted", "price": "free"}


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """What was asked."""

    messages: tuple[Message, ...]
    options: CallOptions


class ScriptedModel(ConfiguredModel):
    """Plays a script.

    Args:
        script: What to answer.
        config: Price, window and waits; free where it is left out.
        name: What it is called here; the configuration's model where it is left out.

    Raises:
        OperatorError: The price is unknown.
    """

    def __init__(self, script: Script, *, config: ModelConfig | None = None, name: str | None = None) -> None:
        self._script = script
        config = config or ModelConfig.model_validate(_DEFAULT)
        super().__init__(config, name or config.model or "scripted")
        self._tries = Tries()
        self.calls: deque[ScriptedCall] = deque(maxlen=_REMEMBERED_CALLS)
        """The last thousand queries, oldest first."""

    @classmethod
    def from_config(cls, name: str, config: ModelConfig) -> Self:
        """The model of the table `[models.NAME]`.

        Raises:
            OperatorError: The script cannot be read, or the price is unknown.
        """
        if config.script is None:
            raise OperatorError(f"Model {name!r} needs a script to play.")
        return cls(Script.load(Path(config.script).expanduser()), config=config.named(name), name=name)

    async def query(self, messages: Sequence[Message], options: CallOptions, watch: StreamWatcher) -> Reply:
        """One call, with its retries."""
        self.calls.append(ScriptedCall(tuple(messages), options))
        said = [(message.role, message.content) for message in messages]
        said += [("assistant", options.prefix)] if options.prefix else []
        prompt = Prompt(self._config.model or self._name, tuple(said))
        return await self._answer(messages, options, watch, partial(self._try, prompt, options))

    async def aclose(self) -> None:
        """Nothing to close."""

    async def _try(self, prompt: Prompt, options: CallOptions, assembly: Assembly) -> None:
        cue = self._script.cue(prompt)
        if cue is None:
            raise http_failure(400, "no rule of the script fits this prompt")
        fault = self._tries.fault(cue, prompt)
        if fault is not None and fault.kind == "status":
            raise http_failure(fault.status, fault.message, retry_after=fault.retry_after)
        if fault is not None and fault.kind == "html":
            raise html_failure()
        assembly.asked = assembly.accepted = True
        stop = stop_sequences(self._config.capabilities, options)
        played = perform(cue.reply, max_tokens=options.max_tokens, stop=stop)
        await self._play(cue, played, fault, assembly)
        if assembly.cut is None:
            _finish(cue, played, prompt, assembly)

    async def _play(self, cue: Cue, played: Performance, fault: Fault | None, assembly: Assembly) -> None:
        await asyncio.sleep(cue.reply.delay_seconds)
        head, rest = played.split(fault.after_tokens) if fault else (played.pieces, ())
        await _deliver(head, cue.reply.token_seconds, assembly)
        if fault is not None and assembly.cut is None:
            await self._fail(fault, assembly)
        if assembly.cut is None:
            await _deliver(rest, cue.reply.token_seconds, assembly)

    async def _fail(self, fault: Fault, assembly: Assembly) -> None:
        """Raise, or deliver what is odd about the answer."""
        match fault.kind:
            case "stall":
                await asyncio.sleep(self._config.idle_timeout_seconds)
                silence = f"nothing came for {self._config.idle_timeout_seconds:g} s"
                raise TryFailed("idle", silence, may_be_billed=True)
            case "error_event":
                raise http_failure(fault.status, fault.message)
            case "invalid_utf8":
                assembly.feed("text", INVALID_UTF8.decode("utf-8", "replace"))
            case "big_chunk":
                assembly.feed("text", fault.big_text)
            case kind:
                raise TryFailed(kind, "the script says so", may_be_billed=True)


async def _deliver(pieces: Sequence[Piece], token_seconds: float, assembly: Assembly) -> None:
    async for batch in Playback(pieces, token_seconds):
        for piece in batch:
            if piece.channel == "tool":
                name, arguments = (piece.text, "") if piece.opens_tool else ("", piece.text)
                assembly.tool(piece.tool, name, arguments)
            else:
                assembly.feed(piece.channel, piece.text)
            if assembly.cut is not None:
                return


def _finish(cue: Cue, played: Performance, prompt: Prompt, assembly: Assembly) -> None:
    assembly.ended, assembly.finish_reason = True, played.finish
    if cue.reply.usage:
        total = count_prompt_tokens(prompt)
        assembly.reported = Reported(
            prompt=total,
            completion=played.tokens,
            cached=min(cue.reply.cached_tokens, total),
            reasoning=played.reasoning_tokens,
        )
