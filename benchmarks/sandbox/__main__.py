"""What it costs to open a sandbox, to run a command in it and to destroy it, in one run.

    python -m benchmarks.sandbox [BACKEND[=OPTIONS] ...] [--rounds 40] [--execs 20] [--engine] [--json]

BACKEND is the name of an installed backend of sandboxes (bubblewrap and local when none is given), OPTIONS
its options as JSON, as in `docker='{"image": "debian:12"}'`. Every case is timed next to a bare
`posix_spawn` of the same program; `x bare` is the ratio of the two medians, `x p10` that of the two tenth
percentiles. `warm open` takes a sandbox that a pool has opened ahead. With `--engine` a Docker engine is
started for the run (root, Debian's docker.io): the backend docker on it, the backend attached in a container
that stands there, and beside them plain `docker exec` for each command. A pod needs a cluster:
`pod='{"image": "NAME@sha256:..."}'`. The aims for bubblewrap are an exec of at most 2, an open of at most 15
and a warm open of at most 2 bare spawns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points

from benchmarks import docker_engine
from benchmarks.sandbox.measure import Opens, Row, measure
from benchmarks.sandbox.peers import docker_peers, standing_container
from zubble_queue.contracts.sandbox import SandboxProvider

DEFAULT = ("bubblewrap", "local")


def made(name: str, options: str) -> SandboxProvider:
    """The provider of a backend. Exits with a sentence when there is none of that name."""
    found = {entry.name: entry for entry in entry_points(group="zubble.sandboxes")}
    if name not in found:
        sys.exit(f"There is no backend {name!r}; installed: {', '.join(sorted(found))}.")
    kind = found[name].load()
    provider: SandboxProvider = kind.from_options(kind.Options(**json.loads(options or "{}")))
    return provider


async def run(backends: Sequence[str], rounds: int, execs: int, peers: Mapping[str, Opens]) -> list[Row]:
    providers = {name: made(name, options) for name, _, options in (text.partition("=") for text in backends)}
    for name, provider in providers.items():
        probe = await provider.probe()
        if not probe.available:
            sys.exit(f"{name} is not available: {'; '.join(probe.problems)}")
    return await measure(providers, rounds, execs, peers)


def with_engine(backends: Sequence[str], rounds: int, execs: int) -> list[Row]:
    """The same, with a Docker engine as long as it lasts. Exits with a sentence where none can be had."""
    try:
        with (
            docker_engine.running() as engine,
            docker_peers(engine) as peers,
            standing_container(engine) as container,
        ):
            made = {"host": engine.host, "image": docker_engine.TOOLS_IMAGE, "min_free_mb": 100}
            found = {"host": engine.host, "container": container}
            more = (f"docker={json.dumps(made)}", f"attached={json.dumps(found)}")
            return asyncio.run(run([*backends, *more], rounds, execs, peers))
    except docker_engine.NoEngine as missing:
        sys.exit(str(missing))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backends", nargs="*", default=DEFAULT, metavar="BACKEND[=OPTIONS]")
    parser.add_argument("--rounds", type=int, default=40, help="how often each backend is opened")
    parser.add_argument("--execs", type=int, default=20, help="commands in each sandbox")
    parser.add_argument(
        "--engine", action="store_true", help="also docker and attached, on an engine of its own"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    if options.rounds < 2 or options.execs < 1:
        parser.error("--rounds must be at least 2 and --execs at least 1")
    if options.engine:
        rows = with_engine(options.backends, options.rounds, options.execs)
    else:
        rows = asyncio.run(run(options.backends, options.rounds, options.execs, {}))
    if options.json:
        print(json.dumps({"schema": "zubble.benchmark.sandbox/1", "rows": [asdict(row) for row in rows]}))
        return
    print(f"{'backend':20}{'case':12}{'median ms':>10}{'p10':>8}{'p90':>8}{'x bare':>8}{'x p10':>8}")
    for row in rows:
        times = f"{row.median_ms:10.2f}{row.p10_ms:8.2f}{row.p90_ms:8.2f}{row.ratio:8.1f}{row.ratio_p10:8.1f}"
        print(f"{row.backend:20}{row.case:12}{times}")


if __name__ == "__main__":
    main()
