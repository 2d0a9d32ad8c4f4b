"""Flower with our settings: how long agents run, how much memory its history takes, and who may do what.

What is set here is a default. A variable FLOWER_… of the environment goes over it, an option goes over both.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from typing import Final

from flower.command import apply_env_options
from tornado.options import Error, options

from zubble_queue.errors import BadInput, CannotStart
from zubble_queue.settings import Settings
from zubble_worker.app import make_app

DEFAULTS: Final[Mapping[str, str]] = {
    "conf": os.devnull,
    "read_only": "true",
    "max_tasks": "50000",
    "task_runtime_metric_buckets": "1,5,10,30,60,120,300,600,900,1800,3600",
    "tasks_columns": "uuid,state,result,exception,received,started,runtime,worker",
    "purge_offline_workers": "3600",
    "state_save_interval": "300000",
}
"""Flower's options. `conf`: it would run a flowerconfig.py of the current folder. `read_only`: its buttons
speak to Celery, which knows nothing of leases; `zubble task cancel` and `zubble batch pause` do. The buckets
end at the longest wall clock of a task, in seconds; Flower's own end at ten."""
_PREFIX: Final = "FLOWER_"
_GUARDS: Final = ("auth", "basic_auth")
"""Either asks a visitor who he is."""


def serve(
    settings: Settings,
    given: Mapping[str, str | int | bool],
    *,
    more: Sequence[str],
    users: Sequence[str],
    open_door: bool,
) -> None:
    """Run Flower until SIGTERM or Ctrl-C.

    Args:
        settings: With redis_url.
        given: Flower's options, by their names.
        more: Further ones, as Flower reads them from a command line; they win.
        users: `name:password` each; none leaves it to Flower's own options who may look.
        open_door: Whether anybody may look who gets here.

    Raises:
        BadInput: An option or a variable that Flower does not know, a value that it cannot read, or anybody
            could look and that was not said.
        CannotStart: The address is not to be had, or Flower refuses what it was told.
    """
    _check(more)
    _check_door(str(given["address"]), open_door=open_door or bool(users) or _guarded(more))
    for name, value in DEFAULTS.items():
        os.environ.setdefault(f"{_PREFIX}{name}".upper(), value)
    if users:
        os.environ.pop(f"{_PREFIX}BASIC_AUTH", None)
        options.basic_auth = list(users)
    try:
        apply_env_options()
    except (ValueError, KeyError, Error) as refused:
        raise BadInput([f"Flower cannot read its variables {_PREFIX}…: {refused}."]) from None
    arguments = [f"--{name}={value}" for name, value in given.items()]
    try:
        make_app(settings).start(["flower", *arguments, *more])
    except Error as refused:
        raise BadInput([f"Flower refuses an option: {str(refused).rstrip('.')}."]) from None
    except OSError as refused:
        where = f"{given.get('address')}:{given.get('port')}"
        raise CannotStart(f"{where} is not to be had: {refused.strerror or refused}.") from refused
    except SystemExit as left:
        if left.code:
            raise CannotStart("Flower refused what it was told; its own words are above.") from None


def _check_door(address: str, *, open_door: bool) -> None:
    if not open_door and not _only_here(address):
        sentence = (
            f"Anybody who reaches {address} would see every task: name who may look (--users FILE, "
            "FLOWER_BASIC_AUTH or FLOWER_AUTH), or say --open."
        )
        raise BadInput([sentence])


def _only_here(address: str) -> bool:
    """Whether only this machine gets to it."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _guarded(more: Sequence[str]) -> bool:
    """Whether Flower's own options or variables say who may look."""
    named = {_name(argument) for argument in more if argument.partition("=")[2]}
    return bool(named & set(_GUARDS)) or any(os.environ.get(f"{_PREFIX}{name}".upper()) for name in _GUARDS)


def _check(more: Sequence[str]) -> None:
    """Flower passes over what it does not know: a misspelled guard would leave the door open."""
    known = {name.replace("-", "_") for name in options}
    problems = [
        f"Flower has no option {argument.partition('=')[0]!r}: write --NAME=VALUE, as `celery flower --help` "
        "names them."
        for argument in more
        if not argument.startswith("--") or _name(argument) not in known
    ]
    if problems:
        raise BadInput(problems)


def _name(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-").replace("-", "_")
