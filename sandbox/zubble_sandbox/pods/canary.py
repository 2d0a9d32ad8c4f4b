"""Finding out whether the deny-all network policy is enforced, by trying to get past it.

A cluster stores network policies whether or not anything enforces them. Two pods try to connect to the same
address: one that no policy of ours selects, to show that the address can be reached at all, and one labelled
as every sandbox is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.pods import manifests
from zubble_sandbox.pods.api import Api
from zubble_sandbox.pods.keeper import Keeper
from zubble_sandbox.pods.options import PodOptions
from zubble_sandbox.pods.waiting import ended, exit_code
from zubble_sandbox.records import new_token

REACHED, NOT_REACHED, NO_TOOL = 0, 10, 11
TRIES: Final = 4
"""A policy that takes effect late is as good as none for the first command."""

_SCRIPT: Final = """\
host={host} port={port}
[ -n "$host" ] || {{ host=$KUBERNETES_SERVICE_HOST port=$KUBERNETES_SERVICE_PORT; }}
reach() {{
    if python3 -c 'import socket' 2>/dev/null; then
        python3 -c 'import socket,sys; socket.create_connection(sys.argv[1:], 2)' "$host" "$port"
    elif command -v bash >/dev/null && command -v timeout >/dev/null; then
        timeout 2 bash -c ': </dev/tcp/$0/$1' "$host" "$port"
    elif command -v nc >/dev/null; then
        nc -w 2 "$host" "$port" </dev/null
    else
        exit {no_tool}
    fi
}}
for try in {tries}; do
    if reach >/dev/null 2>&1; then exit {reached}; fi
    sleep 0.5 2>/dev/null || sleep 1
done
exit {not_reached}
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the canary came to."""

    enforced: bool
    problem: str = ""
    """One sentence, with what to do; empty when it is enforced."""


def script(address: str | None) -> str:
    """What both pods run; `address` has been validated as host:port."""
    host, _, port = (address or ":").rpartition(":")
    return _SCRIPT.format(
        host=host,
        port=port or '""',
        tries=" ".join(str(number) for number in range(TRIES)),
        reached=REACHED,
        not_reached=NOT_REACHED,
        no_tool=NO_TOOL,
    )


async def send(keeper: Keeper, options: PodOptions) -> Verdict:
    """Raises SandboxUnavailable when the two pods cannot be run."""
    api = await keeper.api()
    free, bound = await asyncio.gather(_run(keeper, api, "open", options), _run(keeper, api, "none", options))
    return judge(free, bound, options.canary_address)


def judge(free: int | None, bound: int | None, address: str | None) -> Verdict:
    """By the exit codes of the pod without and the pod with a policy."""
    where = address or "the API server's service address"
    if NO_TOOL in {free, bound}:
        return Verdict(
            False, "The canary's image has neither python3 nor bash nor nc, so it cannot try to connect."
        )
    if bound == REACHED:
        return Verdict(
            False,
            f"Sandbox pods can connect to {where}: the deny-all network policy is missing or not enforced. "
            "Use a network plugin that enforces policies, or set require_network_policy = false.",
        )
    if bound == NOT_REACHED and free == REACHED:
        return Verdict(True)
    return Verdict(
        False,
        f"A pod without network policy cannot connect to {where} either, so nothing is known about the "
        "policy: set canary_address to what such pods can reach, or require_network_policy = false.",
    )


async def _run(keeper: Keeper, api: Api, network: str, options: PodOptions) -> int | None:
    name = new_token()
    keeper.opening(name)
    try:
        owner = await keeper.owner()
        tries = script(options.canary_address)
        await api.create("pods", manifests.canary_pod(name, network, tries, options=options, owner=owner))
        return exit_code(await ended(api, name, options.start_seconds))
    except SandboxUnavailable as error:
        raise SandboxUnavailable(f"The network policy could not be tried: {error}") from error
    finally:
        await asyncio.shield(asyncio.ensure_future(keeper.remove(name)))
