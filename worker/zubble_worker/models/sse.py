"""Server-sent events out of bytes that were cut anywhere."""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 16 * 1_048_576
"""A longer event ends the stream; the longest honest one is a whole answer in one piece."""
_BOM: Final = b"\xef\xbb\xbf"


class EventTooLarge(Exception):
    """An event grew past its bound; `size` bytes of it had come."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"an event of more than {MAX_EVENT_BYTES} bytes")


class SseParser:
    """Turns chunks into the `data` of events; comments and other fields are dropped.

    Lines end with LF, CRLF or CR. The cost is linear in the bytes, however they are cut.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        """Pieces of a line whose end has not come."""
        self._data: list[bytes] = []
        """Data lines of an event whose end has not come."""
        self._size = 0
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that this chunk completes.

        Raises:
            EventTooLarge: One event is over MAX_EVENT_BYTES.
        """
        self._size += len(chunk)
        events = self._complete(chunk) if b"\n" in chunk or b"\r" in chunk else self._keep(chunk)
        if self._size > MAX_EVENT_BYTES and not events:
            raise EventTooLarge(self._size)
        return events

    def flush(self) -> list[bytes]:
        """The last event of a stream that ends without the blank line."""
        return self.feed(b"\n\n")

    def _keep(self, chunk: bytes) -> list[bytes]:
        self._partial.append(chunk)
        return []

    def _complete(self, chunk: bytes) -> list[bytes]:
        self._partial.append(chunk)
        lines = b"".join(self._partial).splitlines(keepends=True)
        # A CR at the very end may be the first half of a CRLF.
        self._partial = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events = [event for line in lines if (event := self._take(line.rstrip(b"\r\n"))) is not None]
        if events:
            self._size = sum(map(len, self._partial)) + sum(map(len, self._data))
        return events

    def _take(self, line: bytes) -> bytes | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            event, self._data = self._data, []
            return b"\n".join(event) if event else None
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        return None
