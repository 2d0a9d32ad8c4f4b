"""The independent witness: the mock endpoint in a process of its own, and what its log says of each call."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

PRICE: Final = {"input": 3.0, "output": 15.0}
"""USD per million tokens."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the endpoint saw it."""

    task_id: str
    attempt: str
    """The lease's epoch, or whatever names a run of the task."""
    call_id: str
    """Within the task."""
    began: float
    ended: float
    """Seconds since the epoch: the last byte was sent, or the client was seen to leave."""
    micro_usd: float
    turn: int
    whole: bool
    """Whether the reply came to its end."""

    @classmethod
    def read(cls, logged: dict[str, Any]) -> Self:
        """From a line of the log. Its name is `<task id>.<attempt>.<step>.<number>`."""
        task_id, attempt, step, number = logged["call_id"].rsplit(".", 3)
        tokens = logged["prompt_tokens"] * PRICE["input"] + logged["completion_tokens"] * PRICE["output"]
        return cls(
            task_id=task_id,
            attempt=attempt,
            call_id=f"{attempt}.{step}.{number}",
            began=logged["time"],
            ended=logged["time"] + logged["seconds"],
            micro_usd=tokens if logged["status"] == 200 else 0.0,
            turn=logged["turn"],
            whole=logged["finish"] == "stop" and not logged["aborted"],
        )


class Endpoint:
    """`zubble mock-endpoint` as a child process."""

    def __init__(self, folder: Path, script: dict[str, Any]) -> None:
        self._folder, self._script = folder, script
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self) -> None:
        path = self._folder / "script.json"
        path.write_text(json.dumps(self._script))
        command = (sys.executable, "-m", "zubble_queue.cli", "mock-endpoint", "--script", str(path), "--json")
        with (self._folder / "endpoint.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self._process.stdout is not None
        self.url = json.loads(await self._process.stdout.readline())["url"]

    async def calls(self) -> list[Call]:
        """All there were, oldest first; they are also kept in the folder."""
        log = await asyncio.to_thread(self._log)
        (self._folder / "calls.jsonl").write_text("".join(json.dumps(logged) + "\n" for logged in log))
        return [Call.read(logged) for logged in log]

    def _log(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/log") as answer:
            log: list[dict[str, Any]] = json.load(answer)
            return log

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
