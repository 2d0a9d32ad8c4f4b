"""Flower with our settings: how long agents run, how much memory its history takes, and who may do what.

What is set here is a default. A variable FLOWER_… of the environment goes over it, an option goes over both.
"""

from __future__ import annotations

import ipaddress
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from flower import urls
from flower.app import Flower
from flower.command import apply_env_options, apply_options, extract_settings, setup_logging
from tornado.options import Error, options

from zubble_queue.errors import BadInput, CannotStart
from zubble_queue.settings import Settings
from zubble_worker.app import make_app
from zubble_worker.flower_follower import Follower, Records

DEFAULTS: Final[Mapping[str, str]] = {
    "conf": os.devnull,
    "read_only": "true",
    "max_tasks": "50000",
    "task_runtime_metric_buckets": "1,5,10,30,60,120,300,600,900,1800,3600",
    "tasks_columns": "uuid,state,result,exception,runtime,received,worker",
    "purge_offline_workers": "3600",
    "state_save_interval": "300000",
}
"""Flower's options. `conf`: it would run a flowerconfig.py of the current folder. `read_only`: its buttons
speak to Celery, which knows nothing of leases; `zubble task cancel` and `zubble batch pause` do. The buckets
end at the longest wall clock of a task, in seconds; Flower's own end at ten."""
_PREFIX: Final = "FLOWER_"
_GUARDS: Final = ("auth", "basic_auth")
"""Either asks a visitor who he is."""

_log = structlog.get_logger(__name__)


class FlowerServer:
    """Flower, told what it is to do.

    Args:
        given: Flower's options, by their names; `address` is one of them.
        more: Further ones, as Flower reads them from a command line; they win.
        users: `name:password` each; none leaves it to Flower's own options who may look.
        open_door: Whether anybody may look who gets here.

    Raises:
        BadInput: An option or a variable that Flower does not know, a value that it cannot read, or anybody
            could look and that was not said.
        CannotStart: Flower refuses what it was told.
    """

    def __init__(
        self,
        given: Mapping[str, str | int | bool],
        *,
        more: Sequence[str],
        users: Sequence[str],
        open_door: bool,
    ) -> None:
        _check(more)
        _check_door(str(given["address"]), open_door=open_door or bool(users) or _guarded(more))
        for name, value in DEFAULTS.items():
            os.environ.setdefault(f"{_PREFIX}{name}".upper(), value)
        if users:
            os.environ.pop(f"{_PREFIX}BASIC_AUTH", None)
            options.basic_auth = list(users)
        _read_options([f"--{name}={value}" for name, value in given.items()], more)

    def serve(self, settings: Settings) -> None:
        """Run until SIGTERM or Ctrl-C; settings with redis_url.

        Raises:
            CannotStart: The address is not to be had.
        """
        flower = Flower(capp=make_app(settings), options=options, **urls.settings)
        try:
            port = flower.start_http_server()
        except OSError as refused:
            where = f"{options.address}:{options.port}"
            raise CannotStart(f"{where} is not to be had: {refused.strerror or refused}.") from refused
        _log.info("flower serves", action="flower_serves", address=options.address, port=port)
        _run(flower, Records(settings))


def _run(flower: Any, records: Records) -> None:
    """In the loop that Flower made, until a signal."""
    loop = flower.io_loop.asyncio_loop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, flower.stop)
    following = loop.create_task(Follower(records.view, flower.events.state).run())
    flower.start()
    following.cancel()
    loop.run_until_complete(records.aclose())


def _read_options(given: Sequence[str], more: Sequence[str]) -> None:
    try:
        apply_env_options()
        apply_options("zubble flower", [*given, *more])
    except (ValueError, Error) as refused:
        raise BadInput([f"Flower cannot read an option or a variable {_PREFIX}…: {refused}."]) from None
    try:
        extract_settings()
    except SystemExit:
        raise CannotStart("Flower refuses what it was told; its own words are above.") from None
    setup_logging()


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
        f"Flower has no option {argument.partition('=')[0]!r}: write --NAME=VALUE, as its documentation "
        "names them."
        for argument in more
        if not argument.startswith("--") or _name(argument) not in known
    ]
    if problems:
        raise BadInput(problems)


def _name(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-").replace("-", "_")
