"""Who may give a supervisor orders: whoever knows the secret that it was started with the hash of."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import Final

from zubble_sandbox import wire
from zubble_sandbox.line import Line, LineLost

INTRODUCE_SECONDS: Final = 15.0


def new_secret() -> str:
    return secrets.token_hex(32)


def key_of(secret: str) -> str:
    """What a supervisor is told instead of the secret: everybody inside can read its arguments."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def introduce(line: Line, secret: str) -> None:
    """Prove who we are on a new line. Raises LineLost, and closes the line then."""
    try:
        async with asyncio.timeout(INTRODUCE_SECONDS):
            await line.write(wire.frame(wire.AUTH, 0, secret.encode()))
            length, kind, _ = wire.parse_header(await line.read_exactly(wire.HEADER_BYTES))
    except (TimeoutError, ValueError) as error:
        await line.close()
        raise LineLost("no supervisor answers there") from error
    except BaseException:
        await line.close()
        raise
    if (length, kind) != (0, wire.OK):
        await line.close()
        raise LineLost("the supervisor does not know us")
