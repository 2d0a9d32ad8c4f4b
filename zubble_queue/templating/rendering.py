"""Rendering a template that came with a task: strictly, in a process with limits, within a time."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zubble_queue.errors import JobError

RENDER_SECONDS: Final = 20.0
"""On a busy machine; the process has one second of processor time for itself."""
_CHILD: Final = str(Path(__file__).with_name("child.py"))


async def render(template: str, variables: Mapping[str, Any]) -> str:
    """The text. Raises JobError with what is wrong with the template."""
    asked = json.dumps({"template": template, "variables": variables}).encode()
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", _CHILD), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={}
    )
    try:
        said, _ = await asyncio.wait_for(child.communicate(asked), RENDER_SECONDS)
    except TimeoutError:
        raise JobError("prompt.template: rendering it took too long") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode not in {0, 1} or not said:
        raise JobError("prompt.template: rendering it took too much time or memory")
    text = str(json.loads(said))
    if child.returncode:
        raise JobError(f"prompt.template: {text}")
    return text
