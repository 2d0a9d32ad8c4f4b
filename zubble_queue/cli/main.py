"""The edge: from arguments to an exit code, and from our exceptions to sentences."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import typer

from zubble_queue.cli.report import Exit, Report
from zubble_queue.errors import BadInput, InfraError, LeaseLost, ZubbleError

ALIASES: Final = {"--env": "--sandbox", "--backend": "--sandbox", "--env-container": "--container"}
_MANY: Final = "--stop-sequences"
_BARE: Final = {"--journal": ".zubble/journal.json", "--completion-signal": "<done>"}
"""Options whose value may be left out, and what it is then."""
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
UsageError: Final[Any] = typer.BadParameter.__mro__[1]
"""click's, wherever this version of typer keeps it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; no expected error leaves with a traceback."""
    arguments = _without_aliases(sys.argv[1:] if argv is None else argv)
    Report.current = Report("error", as_json="--json" in _options(arguments))
    try:
        return _run(arguments)
    except BrokenPipeError:  # the reader of a pipe, as in `zubble task ls B | head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the edge: all become codes
        code, sentences = _explained(error)
        if code is Exit.BUG:  # whoever mends it needs the traceback
            traceback.print_exception(error)
        return Report.current.failed(code, sentences)


def _explained(error: BaseException) -> tuple[Exit, Sequence[str]]:
    code, sentences = Exit.BAD_INPUT, [str(error)]
    match error:
        case BadInput():
            sentences = list(error.problems)
        case InfraError() | LeaseLost():
            code = Exit.INFRASTRUCTURE
        case ZubbleError():
            pass
        case UsageError():
            sentences = [_usage(error)]
        case KeyboardInterrupt() | typer.Abort():
            code, sentences = Exit.DETACHED, ["Interrupted."]
        case OSError():
            sentences = [_os_sentence(error)]
        case _:
            code, sentences = Exit.BUG, ["This is a fault in zubble-queue; please report it."]
    return code, sentences


def _run(arguments: Sequence[str]) -> int:
    from zubble_queue.cli.app import app

    code = typer.main.get_command(app).main(list(arguments), prog_name="zubble", standalone_mode=False)
    if code == Exit.DETACHED and not Report.current.answered:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt
    return code if isinstance(code, int) else Exit.DONE


def _options(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments before `--`."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _without_aliases(arguments: Sequence[str]) -> list[str]:
    """In the words of the commands; several values after one option become as many options."""
    ours = _options(arguments)
    return [*_spread([_unaliased(argument) for argument in ours]), *arguments[len(ours) :]]


def _spread(arguments: Sequence[str]) -> Iterator[str]:
    many = False
    for argument, following in pairwise((*arguments, "--")):
        if argument in _BARE and following.startswith("--"):
            yield f"{argument}={_BARE[argument]}"
        elif argument == _MANY and not following.startswith("--"):
            many = True
        elif many and not argument.startswith("--"):
            yield f"{_MANY}={argument}"
        else:
            many = False
            yield argument


def _unaliased(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{ALIASES[name]}{equals}{value}" if name in ALIASES else argument


def _usage(misused: Any) -> str:
    command = misused.ctx.command_path if misused.ctx else "zubble"
    return f"{misused.format_message().rstrip('.')}. See `{command} --help`."


def _os_sentence(failed: OSError) -> str:
    where = f" ({failed.filename})" if failed.filename else ""
    if failed.errno in _DISK_FULL:
        return f"There is no space left on the device{where}."
    return f"{failed.strerror or failed}{where}."
