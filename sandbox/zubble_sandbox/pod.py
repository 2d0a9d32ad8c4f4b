"""Sandboxes as pods of a Kubernetes cluster: one for each attempt, reached through the API server alone.

A pod passes the Pod Security level `restricted`: its own uid, no capability, a read-only root, no token of
the cluster, volumes in sized memory, requests equal to limits. Its process 1 is our supervisor; the only way
in is a relay started by exec, which may break and be opened again without a command running twice. No pod
outlives its worker: it belongs to a Lease that the worker renews, and has a deadline of its own.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from zubble_queue.contracts.sandbox import Probe, Sandbox, SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import egress, probing
from zubble_sandbox.channel import RECONNECT_SECONDS, Channel
from zubble_sandbox.commands import BASE_ENV
from zubble_sandbox.egress import Egress
from zubble_sandbox.pods import canary, making, remembering
from zubble_sandbox.pods.keeper import Keeper
from zubble_sandbox.pods.layout import Layout, check
from zubble_sandbox.pods.options import PodOptions
from zubble_sandbox.pods.reaching import Place
from zubble_sandbox.pods.waiting import fate
from zubble_sandbox.supervised import GRACE_SECONDS, Setup, SupervisedSandbox

POLICY_SECONDS: Final = 3_600.0
"""How long a canary's finding is believed."""
_WAY_OUT: Final = "pod-"
"""What the folders of their proxies begin with: no record tells a reaper of them."""
_HANDLE: Final = r"zubble-[0-9a-f]{32}"
_OOM: Final = "/sys/fs/cgroup/memory.events:/sys/fs/cgroup/memory/memory.oom_control"
_CHECKS: Final = {
    **{fact: probing.ISOLATION[fact] for fact in ("seccomp", "capabilities", "privileges", "supervisor")},
    "root": "! test -w / && ! test -w /dev && ! test -w /proc/sys/kernel/core_pattern",
    "token": "! test -e /var/run/secrets/kubernetes.io",
}


class PodProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider`.

    Args:
        options: What the settings say.
    """

    name: Final = "pod"
    Options: Final = PodOptions

    def __init__(self, options: PodOptions | None = None) -> None:
        self.options = options or PodOptions()
        self._keeper: Keeper | None = None
        self._verdict: canary.Verdict | None = None
        self._looked_at = 0.0

    @classmethod
    def from_options(cls, options: PodOptions) -> PodProvider:
        return cls(options)

    async def probe(self) -> Probe:
        probe = await probing.probe(self, self._facts, _CHECKS)
        if not probe.isolated:
            return probe
        return replace(probe, strength="kernel" if self.options.runtime_class else "limits")

    async def open(self, spec: SandboxSpec) -> Sandbox:
        check(spec)
        layout, made = Layout.of(spec), making.ticket(spec, self.options)
        keeper = self._kept()
        if spec.network != "open":
            await self._ensure_policy(keeper)
        release = partial(keeper.remove, made.token)
        async with egress.while_opening(await egress.open_for(spec, f"{_WAY_OUT}{made.token}")) as way_out:
            keeper.opening(made.token)
            channel: Channel | None = None
            try:
                place, image_env = await making.make(spec, layout, self.options, keeper, made)
                channel = Channel(await place.first_line(), place.line)
                handle = place.name if spec.linger_seconds else None
                setup = await _setup(spec, image_env, place, way_out)
                sandbox = await SupervisedSandbox.begin(spec, setup, channel, release, handle)
            except BaseException as error:
                if channel is not None:
                    await channel.close()
                await asyncio.shield(asyncio.ensure_future(release()))
                if isinstance(error, TimeoutError):
                    raise SandboxUnavailable(
                        f"The supervisor in the pod {made.token} does not answer."
                    ) from error
                raise
        sandbox.renamed = partial(keeper.renamed, made.token)
        sandbox.way_out = way_out
        return sandbox

    async def attach(self, handle: str) -> Sandbox:
        if not re.fullmatch(_HANDLE, handle):
            raise SandboxUnavailable(f"There is no sandbox {handle!r}.")
        keeper = self._kept()
        api = await keeper.api()
        pod = await api.find("pods", handle)
        if pod is None:
            raise SandboxUnavailable(f"The sandbox {handle} has ended: {fate(None)}.")
        place, (spec, image_env) = Place.of(api, pod), remembering.recalled(pod)
        async with egress.while_opening(await egress.open_for(spec, f"{_WAY_OUT}{handle}")) as way_out:
            keeper.opening(handle)
            channel: Channel | None = None
            try:
                await keeper.adopt(pod)
                channel = Channel(await place.first_line(), place.line)
                with_it = (
                    await _setup(spec, image_env, place, way_out),
                    channel,
                    partial(keeper.remove, handle),
                )
                sandbox = await SupervisedSandbox.adopt(spec, *with_it, handle)
            except BaseException:
                keeper.closed(handle)
                if channel is not None:
                    await channel.close()
                raise
        sandbox.way_out = way_out
        return sandbox

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        await asyncio.to_thread(egress.forget_silent, _WAY_OUT)
        return await self._kept().sweep(keep_owners)

    async def close(self) -> None:
        """End the connection to the cluster; the Lease is left to expire, or to `reap`."""
        if self._keeper is not None and self._keeper.usable:
            await self._keeper.close()

    def _kept(self) -> Keeper:
        if self._keeper is None or not self._keeper.usable:
            self._keeper = Keeper(self.options)
        return self._keeper

    async def _ensure_policy(self, keeper: Keeper) -> None:
        """Raises SandboxUnavailable where commands could reach the network."""
        if not self.options.require_network_policy:
            return
        async with keeper.looking:
            if self._verdict is None or time.monotonic() > self._looked_at + POLICY_SECONDS:
                self._verdict = await canary.send(keeper, self.options)
                self._looked_at = time.monotonic()
        if not self._verdict.enforced:
            raise SandboxUnavailable(self._verdict.problem)

    def _facts(self) -> Mapping[str, str]:
        options = self.options
        policy = "enforced" if options.require_network_policy else "not looked at"
        return {
            "namespace": options.namespace,
            "image": options.image or "none",
            "runtime": options.runtime_class or "the nodes' default",
            "network policy": policy,
            "limits": "cgroups by the kubelet; processes by rlimit",
        }


async def _setup(
    spec: SandboxSpec, image_env: Mapping[str, str], place: Place, way_out: Egress | None
) -> Setup:
    layout = Layout.of(spec)
    if way_out is not None:
        await way_out.carry(place.carrier)
    own = {"ZUBBLE_WORK": layout.work.path, "ZUBBLE_VERIFY": layout.verify.path}
    return Setup(
        mode="namespace",
        folders=layout.folders,
        env={**BASE_ENV, **image_env, **own, **(way_out.env if way_out else {}), **spec.env},
        oom=_OOM,
        linger_seconds=making.LINE_SECONDS,
        grace_seconds=GRACE_SECONDS + RECONNECT_SECONDS,
    )
