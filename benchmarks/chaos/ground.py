"""Where a campaign runs, and that it takes everything down with it, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.chaos.options import Options

T = TypeVar("T")
_ENDED_BY_A_SIGNAL: Final = 130


def on_ground(options: Options, run: Callable[[Options, Path], Awaitable[T]]) -> T:
    """Run a campaign in a folder of its own; SIGTERM and SIGINT stop its processes as well.

    Raises:
        SystemExit: With 2 and one sentence where it cannot run; with 130 after a signal.
    """
    with contextlib.ExitStack() as stack:
        name = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="zubble-chaos-"))
        folder = Path(name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_leftovers(folder)
            return asyncio.run(_stoppable(run(options, folder.absolute())))
        except (OSError, RuntimeError) as problem:
            print(problem, file=sys.stderr)
            raise SystemExit(2) from None
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise SystemExit(_ENDED_BY_A_SIGNAL) from None


def _refuse_leftovers(folder: Path) -> None:
    """Workers of an earlier campaign that are still alive there would take part in this one."""
    if any(folder.iterdir()):
        raise RuntimeError(f"--keep: {folder} is not empty; name a folder that is new or empty.")


async def _stoppable(running: Awaitable[T]) -> T:
    whole = asyncio.ensure_future(running)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, whole.cancel)
    return await whole
