"""A unified diff, as `git apply` and `patch -p1` read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from zubble_worker.linediff import Region
from zubble_worker.snapshots import Item

_CONTEXT: Final = 3
_NO_NEWLINE: Final = b"\\ No newline at end of file\n"
_ESCAPES: Final = {
    0x07: b"\\a",
    0x08: b"\\b",
    0x09: b"\\t",
    0x0A: b"\\n",
    0x0B: b"\\v",
    0x0C: b"\\f",
    0x0D: b"\\r",
    ord('"'): b'\\"',
    ord("\\"): b"\\\\",
}

Side = tuple[Item | None, Sequence[bytes]]
"""A text file and its lines; None where it does not exist."""


def of_file(path: bytes, old: Side, new: Side, found: Sequence[Region]) -> bytes:
    """The part of a patch that is about one text file; `found` is how its lines differ."""
    head = _header(path, old[0], new[0], has_hunks=bool(found))
    return b"".join([*head, *_hunks(old[1], new[1], found)])


def lines(item: Item | None) -> list[bytes]:
    """Split at line feeds only, which stay: a carriage return is a character as any other."""
    if item is None or not item.data:
        return []
    *whole, last = item.data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]


def _header(path: bytes, old: Item | None, new: Item | None, *, has_hunks: bool) -> Iterator[bytes]:
    before, after = quoted(b"a/" + path), quoted(b"b/" + path)
    yield b"diff --git %s %s\n" % (before, after)
    if old is None and new is not None:
        yield b"new file mode %s\n" % _mode(new)
    elif new is None and old is not None:
        yield b"deleted file mode %s\n" % _mode(old)
    elif old and new and old.executable != new.executable:
        yield b"old mode %s\nnew mode %s\n" % (_mode(old), _mode(new))
    if has_hunks:
        yield b"--- %s\n" % (before if old else b"/dev/null")
        yield b"+++ %s\n" % (after if new else b"/dev/null")


def _mode(item: Item) -> bytes:
    return b"100755" if item.executable else b"100644"


def _hunks(old: Sequence[bytes], new: Sequence[bytes], found: Sequence[Region]) -> Iterator[bytes]:
    group: list[Region] = []
    for region in found:
        if group and region.old_from - group[-1].old_to > 2 * _CONTEXT:
            yield from _hunk(old, new, group)
            group = []
        group.append(region)
    if group:
        yield from _hunk(old, new, group)


def _hunk(old: Sequence[bytes], new: Sequence[bytes], group: Sequence[Region]) -> Iterator[bytes]:
    first, last = group[0], group[-1]
    lead = min(_CONTEXT, first.old_from)
    trail = min(_CONTEXT, len(old) - last.old_to)
    old_range = _range(first.old_from - lead, last.old_to + trail)
    new_range = _range(first.new_from - lead, last.new_to + trail)
    yield b"@@ -%s +%s @@\n" % (old_range, new_range)
    at = first.old_from - lead
    for region in group:
        yield from _marked(b" ", old[at : region.old_from])
        yield from _marked(b"-", old[region.old_from : region.old_to])
        yield from _marked(b"+", new[region.new_from : region.new_to])
        at = region.old_to
    yield from _marked(b" ", old[at : at + trail])


def _range(begin: int, end: int) -> bytes:
    """Lines are counted from 1; an empty range names the line before it."""
    return b"%d,%d" % (begin + (end > begin), end - begin)


def _marked(mark: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + line
        if not line.endswith(b"\n"):
            yield b"\n" + _NO_NEWLINE


def quoted(name: bytes) -> bytes:
    """As git writes a name: as it is, or in quotes where a byte of it is not printable ASCII."""
    escaped = b"".join(_escaped(byte) for byte in name)
    return name if escaped == name and b" " not in name else b'"%s"' % escaped


def _escaped(byte: int) -> bytes:
    plain = bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte
    return _ESCAPES.get(byte, plain)
