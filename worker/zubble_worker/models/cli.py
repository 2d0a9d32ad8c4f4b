"""A program on the worker's machine that answers in place of an endpoint: claude, gemini, copilot, or any.

It runs beside the worker, outside of every sandbox, because only there are its login and its network. Only
the worker's settings say what is started; a task has no part in it, its text is standard input. Each call is
a process group of its own in an empty folder, with an environment made of an allow-list; whatever is left of
the group is killed when the call is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from zubble_queue.contracts.cli_config import CONTINUE
from zubble_queue.errors import OperatorError
from zubble_worker.models.cli_output import output_for, read_usage
from zubble_worker.models.configured import ConfiguredModel
from zubble_worker.models.failure import TryFailed, presentable
from zubble_worker.models.keys import read_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zubble_queue.contracts.cli_config import CliTable
    from zubble_queue.contracts.envelope import Level
    from zubble_queue.contracts.model import CallOptions, Message, Reply, StreamWatcher
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_worker.models.assembly import Assembly
    from zubble_worker.models.cli_output import Output

_ALWAYS: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
_READ_BYTES: Final = 65_536
_MAX_BYTES: Final = 256 * 1_048_576
_COMPLAINT_BYTES: Final = 4_096
"""Of the standard error, kept from its end."""
_COMPLAINT_SECONDS: Final = 1.0
_LEAVING_SECONDS: Final = 10.0
"""How long the program may take to end after its answer has."""
_LOOK_BYTES: Final = 16_384
"""The reply's length is looked at once in so many."""


class CliModel(ConfiguredModel):
    """One program.

    Args:
        config: Its table, with `cli`.
        name: What it is called here.
        api_key: Given to it as the variable `api_key_env`; held here and nowhere else.

    Raises:
        OperatorError: The price is unknown, or there is no program to start.
    """

    def __init__(self, config: ModelConfig, *, name: str, api_key: str | None = None) -> None:
        if config.cli is None:
            raise OperatorError(f"Model {name!r} needs a program: cli = {{command = [...]}}.")
        super().__init__(config, name)
        self._cli, self._key = config.cli, api_key

    @classmethod
    def from_config(cls, name: str, config: ModelConfig) -> Self:
        """The model of the table `[models.NAME]`.

        Raises:
            NoKey: The key is missing.
            OperatorError: The price is unknown, or there is no program to start.
        """
        return cls(config, name=name, api_key=read_key(name, config))

    def __repr__(self) -> str:
        return f"CliModel({self.name!r} by {self._cli.command[0]})"

    def continues(self, level: Level) -> bool:  # noqa: ARG002 -- every model has it
        """No program goes on from the beginning of a reply."""
        return False

    async def query(self, messages: Sequence[Message], options: CallOptions, watch: StreamWatcher) -> Reply:
        """One call, with its retries; stop sequences, temperature, seed and schema are not for programs."""
        return await self._answer(
            messages, options, watch, partial(self._try, prompt_text(messages), options)
        )

    async def aclose(self) -> None:
        """Nothing is open between two calls."""

    async def _try(self, prompt: str, options: CallOptions, assembly: Assembly) -> None:
        with tempfile.TemporaryDirectory(prefix="zubble-cli-", ignore_cleanup_errors=True) as scratch:
            for name, content in self._cli.files.items():
                (Path(scratch) / name).write_text(content, "utf-8")
            effort = self._config.capabilities.reasoning_efforts.get(options.level, "")
            command = arguments(self._cli, prompt, scratch, model=self._config.model or "", effort=effort)
            process = await self._start(command, scratch)
            try:
                await self._converse(process, prompt, options, assembly)
                if self._cli.output == "copilot":
                    read_usage(Path(scratch), assembly)
            finally:
                await asyncio.shield(_end_group(process))

    async def _start(self, command: list[str], scratch: str) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=scratch,
                env=self._environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            said = f"{command[0]} cannot be started: {problem}"
            raise TryFailed("command", presentable(said, self._key), permanent=True) from problem

    def _environment(self) -> dict[str, str]:
        names = (*_ALWAYS, *self._cli.environment)
        plain = {name: os.environ[name] for name in names if name in os.environ}
        named = self._config.api_key_env
        return plain | ({named: self._key} if named and self._key else {})

    async def _converse(
        self, process: asyncio.subprocess.Process, prompt: str, options: CallOptions, assembly: Assembly
    ) -> None:
        by_stdin = not any("{prompt}" in argument for argument in self._cli.command)
        assembly.asked = assembly.accepted = True
        output = output_for(self._cli.output, assembly)
        writing = asyncio.create_task(_write(process, prompt if by_stdin else ""))
        complaining = asyncio.create_task(_last_of_stderr(process))
        try:
            if await self._read(process, output, options, assembly):
                code = await _exit_code(process)
                if code != 0 and not assembly.ended:
                    await asyncio.wait([complaining], timeout=_COMPLAINT_SECONDS)
                    said = complaining.result() if complaining.done() else ""
                    raise _exited(code, presentable(said, self._key))
                output.end()
        finally:
            writing.cancel()
            complaining.cancel()

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        output: Output,
        options: CallOptions,
        assembly: Assembly,
    ) -> bool:
        """The output until its end; False where it is left before: it was cut, or is longer than allowed."""
        assert process.stdout is not None
        received, looked_at, idle = 0, 0, self._config.idle_timeout_seconds
        while True:
            try:
                async with asyncio.timeout(idle):
                    data = await process.stdout.read(_READ_BYTES)
            except TimeoutError as silent:
                raise TryFailed("idle", f"nothing came for {idle:g} s", may_be_billed=True) from silent
            if not data:
                return True
            received += len(data)
            output.feed(data)
            too_long = assembly.pieces >= options.max_tokens and not assembly.ended
            if received - looked_at > _LOOK_BYTES:
                looked_at = received
                too_long |= assembly.estimated_tokens > options.max_tokens
            if assembly.cut is not None or too_long:
                return False
            if received > _MAX_BYTES:
                raise TryFailed("too large", f"the answer is longer than {_MAX_BYTES} bytes")


def prompt_text(messages: Sequence[Message]) -> str:
    """The conversation as one text. JSON, so that no message can play another role (Z6)."""
    talk = [{"role": message.role, "content": message.content} for message in messages]
    return f"{CONTINUE}\n\n{json.dumps(talk, ensure_ascii=False, indent=1)}\n"


def arguments(cli: CliTable, prompt: str, scratch: str, *, model: str, effort: str) -> list[str]:
    """The command with its placeholders filled in; an argument whose placeholder is empty is left out."""
    optional = {"{model}": model, "{effort}": effort}
    given = [
        argument
        for argument in cli.command
        if not any(name in argument and not value for name, value in optional.items())
    ]
    # The prompt last: nothing in it is a placeholder.
    values = {**optional, "{scratch}": scratch, "{prompt}": prompt}
    for name, value in values.items():
        given = [argument.replace(name, value) for argument in given]
    return given


async def _write(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(text.encode("utf-8", "replace"))
        await process.stdin.drain()
    process.stdin.close()


async def _last_of_stderr(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    kept = b""
    while data := await process.stderr.read(_READ_BYTES):
        kept = (kept + data)[-_COMPLAINT_BYTES:]
    return kept.decode("utf-8", "replace")


async def _exit_code(process: asyncio.subprocess.Process) -> int | None:
    """None where it has closed its output and goes on."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVING_SECONDS):
            return await process.wait()
    return None


def _exited(code: int | None, said: str) -> TryFailed:
    cause = "no exit" if code is None else f"exit {code}" if code > 0 else f"signal {-code}"
    return TryFailed(cause, said or "the program said nothing", may_be_billed=True)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Kill the program and all that it started, as far as that has not left its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
