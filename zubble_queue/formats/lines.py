"""JSON lines as users have them: plain or gzipped, split on newline bytes only, problems with their lines."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NoReturn, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from zubble_queue.errors import BadInput

LINE_BYTES: Final = 64 * 1_048_576
"""A longer line is a mistake, or an attack on our memory."""
_GZIP_MAGIC: Final = b"\x1f\x8b"


class Problems:
    """Collects every problem of a file or folder, one sentence each, before anything is made of it.

    Args:
        path: The file or folder.
        where: Names the place of a number; the lines of a file by default.
    """

    def __init__(self, path: Path, where: Callable[[int], str] | None = None) -> None:
        self.path = path
        self._where = where
        self._sentences: list[str] = []

    def place(self, number: int) -> str:
        """As in `line 3`."""
        return self._where(number) if self._where else f"line {number}"

    def add(self, number: int, text: str) -> None:
        place = self.place(number)
        self._sentences.append(f"{place if self._where else f'{self.path.name} {place}'}: {text}")

    def add_invalid(self, line: int, invalid: ValidationError) -> None:
        for text in sentences(invalid):
            self.add(line, text)

    def raise_any(self) -> None:
        """Raises BadInput with all of them."""
        if self._sentences:
            raise BadInput(self._sentences)


def sentences(
    invalid: ValidationError, prefix: str = "", renamed: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """One sentence per error of a record: the field as the user calls it, and what is wrong with it."""
    for error in invalid.errors(include_url=False):
        name = ".".join(str(part) for part in error["loc"])
        field = f"{prefix}{renamed.get(name, name)}".rstrip(".")
        yield f"{field}: {_wrong(error)}." if field else f"{_wrong(error)}."


def _wrong(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    if error["type"] == "missing":
        return "is missing"
    text = error["msg"].removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    value = error["input"]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{text[:1].lower()}{text[1:]}{f', got {value}' if number else ''}"


def objects(path: Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """The file's JSON objects with their line numbers; blank lines are skipped, bad ones become problems.

    Raises:
        BadInput: The file itself cannot be read.
    """
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            value = _parsed(line)
        except (ValueError, RecursionError) as broken:
            problems.add(number, f"not valid JSON: {_short(broken)}.")
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            problems.add(number, f"must be a JSON object, not {type(value).__name__}.")


def first_object(path: Path) -> dict[str, Any]:
    """The first readable object of a file, or an empty one; for telling formats apart."""
    return next((value for _, value in objects(path, Problems(path))), {})


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with _opened(path) as file:
            while line := file.readline(LINE_BYTES):
                yield line
    except (OSError, EOFError, zlib.error) as unreadable:
        reason = getattr(unreadable, "strerror", None) or str(unreadable)
        raise BadInput([f"{path} cannot be read: {reason}."]) from unreadable


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path, "rb")) if zipped else path.open("rb")


def _parsed(line: bytes) -> Any:
    if len(line) >= LINE_BYTES and not line.endswith(b"\n"):
        raise ValueError(f"the line is longer than {LINE_BYTES} bytes")
    text = line.decode("utf-8-sig").strip()
    value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()  # raises on half of a surrogate pair
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, item in pairs:
        if name in value:
            raise ValueError(f"the name {name!r} occurs twice in one object")
        value[name] = item
    return value


def _short(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    if isinstance(error, UnicodeError):
        return "the text is not UTF-8"
    return str(error)[:200]
