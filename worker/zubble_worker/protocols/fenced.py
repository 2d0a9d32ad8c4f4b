"""Markdown as the text protocol reads it: fenced blocks, and the lines outside them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    words: tuple[str, ...]
    """Of the line that opens it, as in ("sh", "2")."""
    text: str


@dataclass(slots=True)
class Reply:
    """A reply in its parts."""

    blocks: list[Block] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    """Lines that are in no block, in order."""
    ends_outside: bool = True
    """Whether the last line that is not empty is in no block."""
    closed: bool = True
    """Whether every fence that was opened was closed."""


def split(text: str) -> Reply:
    """A fence is closed by one of the same sign that is at least as long and says nothing else."""
    reply, opened = Reply(), None
    inside: list[str] = []
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if opened is None:
            if fence and not (fence[1][0] == "`" and "`" in fence[2]):
                opened, inside = fence, []
                reply.ends_outside = False
            else:
                reply.outside.append(line)
                reply.ends_outside = reply.ends_outside or bool(line.strip())
        elif fence and fence[1].startswith(opened[1]) and not fence[2].strip():
            reply.blocks.append(Block(tuple(opened[2].split()), "\n".join(inside)))
            opened = None
        else:
            inside.append(line)
    reply.closed = opened is None
    return reply
