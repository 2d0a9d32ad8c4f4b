"""What the programs of the `cli` backend print, read into the assembly: plain text, or their JSON lines.

Sources: what `claude -p --output-format stream-json --include-partial-messages`, `gemini --output-format
stream-json` and `copilot --output-format json --usage-output-file` wrote when they were run. Fields that are
missing, and lines of other kinds, are nothing.
"""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from zubble_worker.models.assembly import Reported
from zubble_worker.models.failure import TryFailed, http_failure, presentable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zubble_queue.contracts.cli_config import CliFormat
    from zubble_queue.contracts.model import Channel
    from zubble_worker.models.assembly import Assembly

USAGE_FILE: Final = "usage.json"
MAX_LINE_BYTES: Final = 16 * 1_048_576


class Output(Protocol):
    """Takes the standard output as it comes."""

    def feed(self, data: bytes) -> None:
        """Raises TryFailed where the program says that it failed."""

    def end(self) -> None:
        """The program has ended well. Raises TryFailed where its answer had not."""


class TextOutput:
    """All of it is the reply."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        self._take(self._decoder.decode(data))

    def end(self) -> None:
        self._take(self._decoder.decode(b"", final=True))
        self._assembly.ended, self._assembly.finish_reason = True, "stop"

    def _take(self, text: str) -> None:
        if text and self._assembly.cut is None:
            self._assembly.feed("text", text)


class LinesOutput:
    """One JSON object a line; what is no object is a notice and left out."""

    def __init__(self, assembly: Assembly, take: Callable[[dict[str, Any], Assembly], None]) -> None:
        self._assembly, self._take = assembly, take
        self._partial = bytearray()

    def feed(self, data: bytes) -> None:
        self._partial += data
        if b"\n" not in data:
            if len(self._partial) > MAX_LINE_BYTES:
                raise TryFailed("too large", f"a line of more than {MAX_LINE_BYTES} bytes")
            return
        *lines, rest = self._partial.split(b"\n")
        self._partial = bytearray(rest)
        for line in lines:
            self._line(line)

    def end(self) -> None:
        self._line(self._partial)
        if not self._assembly.ended and self._assembly.cut is None:
            raise TryFailed("eof", "the program ended before its answer did", may_be_billed=True)

    def _line(self, line: bytes | bytearray) -> None:
        if self._assembly.cut is not None or not line.lstrip().startswith(b"{"):
            return
        try:
            value = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as problem:
            raise TryFailed("malformed", "a line of the program is not JSON", may_be_billed=True) from problem
        if isinstance(value, dict):
            self._take(value, self._assembly)


def take_claude(line: dict[str, Any], assembly: Assembly) -> None:
    """Deltas come as `stream_event`, usage with the `result`."""
    match line.get("type"):
        case "stream_event":
            event = _object(line.get("event"))
            delta = _object(event.get("delta"))
            _feed(assembly, "reasoning", delta.get("thinking"))
            _feed(assembly, "text", delta.get("text"))
            assembly.finish_reason = _text(delta.get("stop_reason")) or assembly.finish_reason
        case "result":
            _claude_result(line, assembly)


def _claude_result(line: dict[str, Any], assembly: Assembly) -> None:
    if line.get("is_error"):
        status = line.get("api_error_status")
        raise _failed(line.get("result") or line.get("subtype"), status)
    usage = _object(line.get("usage"))
    cached = _count(usage.get("cache_read_input_tokens"))
    prompt = _count(usage.get("input_tokens")) + cached + _count(usage.get("cache_creation_input_tokens"))
    _end(assembly, prompt, _count(usage.get("output_tokens")), cached)
    if not assembly.delivered:
        _feed(assembly, "text", line.get("result"))


def take_gemini(line: dict[str, Any], assembly: Assembly) -> None:
    """Deltas come as `message`, usage with the `result`."""
    match line.get("type"):
        case "message" if line.get("role") == "assistant":
            _feed(assembly, "text", line.get("content"))
        case "result":
            error = _object(line.get("error"))
            if line.get("status") == "error" or error:
                raise _failed(error.get("message"), error.get("code"))
            stats = _object(line.get("stats"))
            prompt, completion = _count(stats.get("input_tokens")), _count(stats.get("output_tokens"))
            # What is thought is in the total alone.
            completion = max(completion, _count(stats.get("total_tokens")) - prompt)
            _end(assembly, prompt, completion, _count(stats.get("cached")))


def take_copilot(line: dict[str, Any], assembly: Assembly) -> None:
    """Deltas come as `assistant.…_delta`, usage in a file of its own."""
    data = _object(line.get("data"))
    match line.get("type"):
        case "assistant.message_delta":
            _feed(assembly, "text", data.get("deltaContent"))
        case "assistant.reasoning_delta":
            _feed(assembly, "reasoning", data.get("deltaContent"))
        case "assistant.message" if not assembly.delivered:
            _feed(assembly, "text", data.get("content"))
        case "session.error" | "error":
            raise _failed(data.get("message") or line.get("message"), data.get("statusCode"))
        case "result":
            assembly.ended = line.get("exitCode", 0) == 0
            assembly.finish_reason = assembly.finish_reason or "stop"


_TAKES: Final = {"claude": take_claude, "gemini": take_gemini, "copilot": take_copilot}


def read_usage(folder: Path, assembly: Assembly) -> None:
    """What copilot wrote into its folder about all models it asked."""
    try:
        with (folder / USAGE_FILE).open("rb") as file:
            said = _object(json.loads(file.read(MAX_LINE_BYTES)))
    except (OSError, ValueError, RecursionError):
        return
    counts = [_object(_object(m).get("usage")) for m in _object(said.get("modelMetrics")).values()]
    prompt, completion, cached = (
        sum(_count(usage.get(name)) for usage in counts)
        for name in ("inputTokens", "outputTokens", "cacheReadTokens")
    )
    if prompt + completion:
        assembly.reported = Reported(prompt, completion, min(cached, prompt))


def output_for(kind: CliFormat, assembly: Assembly) -> Output:
    """What reads a program's output."""
    return TextOutput(assembly) if kind == "text" else LinesOutput(assembly, _TAKES[kind])


def _feed(assembly: Assembly, channel: Channel, text: Any) -> None:
    if isinstance(text, str) and text and assembly.cut is None:
        assembly.feed(channel, text)


def _end(assembly: Assembly, prompt: int, completion: int, cached: int) -> None:
    assembly.ended, assembly.finish_reason = True, assembly.finish_reason or "stop"
    if prompt + completion:
        assembly.reported = Reported(prompt, completion, min(cached, prompt))


def _failed(message: Any, status: Any) -> TryFailed:
    said = presentable(message if isinstance(message, str) else "no reason given", None)
    if isinstance(status, int) and 400 <= status <= 599:
        return http_failure(status, said)
    return TryFailed("program", said, may_be_billed=True)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
