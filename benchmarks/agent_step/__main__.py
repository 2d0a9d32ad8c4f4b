"""CPU seconds of one agent step, against mini-swe-agent and Inspect AI on the same scripted endpoint.

    python3 -m venv mini && mini/bin/pip install mini-swe-agent==2.4.6
    python3 -m venv inspect && inspect/bin/pip install inspect-ai==0.3.285 openai
    python -m benchmarks.agent_step --mini mini/bin/python --inspect inspect/bin/python

Every harness runs one task of few and one of many steps; a step is one reply of about thirty tokens and a
line written to a file. What is counted is the processor time of the harness and of every process it waited
for, so commands and sandboxes are in it; the endpoint is not. The difference of the two tasks, divided by the
steps between them, is a step; start and end cancel out. `zubble run` streams, watches the stream, keeps its
events and journal in its own Valkey and runs the command in bubblewrap; the others ask for the whole reply
and run the command on the host.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"
THOUGHT = "The next number is due now, so I say it aloud and look at what the shell answers"


def turns_of(kind: str, steps: int) -> list[Any]:
    """What the endpoint says in each harness's own protocol: `steps` commands, then the end."""
    commands = [f"echo number {n} | tee -a numbers" for n in range(1, steps + 1)]
    match kind:
        case "zubble":
            commands[-1] += "; touch done"
            runs = [json.dumps({"action": "run", "command": each, "reasoning": THOUGHT}) for each in commands]
            plan = json.dumps({"action": "plan", "steps": ["say the numbers"]})
            return [plan, *runs, json.dumps({"action": "submit", "report": "done"})]
        case "mini":
            commands.append("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
            return [f"{THOUGHT}.\n\n```mswea_bash_command\n{each}\n```" for each in commands]
        case _:
            calls = [{"name": "bash", "arguments": json.dumps({"command": each})} for each in commands]
            calls.append({"name": "submit", "arguments": json.dumps({"answer": "done"})})
            return [{"text": THOUGHT, "tool_calls": [call]} for call in calls]


def cpu_seconds(kind: str, steps: int, command: Callable[[str, Path], Sequence[str]]) -> float:
    """Processor time of one task of so many steps, that of all waited-for descendants included."""
    with tempfile.TemporaryDirectory(prefix="zubble-step-") as name:
        folder = Path(name)
        script = folder / "script.json"
        script.write_text(json.dumps({"rules": [{"turns": turns_of(kind, steps)}]}))
        serving = subprocess.Popen(
            [sys.executable, "-m", "zubble_queue.cli", "mock-endpoint", "--script", str(script), "--json"],
            stdout=subprocess.PIPE,
        )
        try:
            assert serving.stdout is not None
            url = json.loads(serving.stdout.readline())["url"]
            log = folder / "log"
            with log.open("wb") as out:
                child = subprocess.Popen(command(url, folder), stdout=out, stderr=out, cwd=folder)
                _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                sys.exit(f"{kind} ended with {child.returncode}:\n{log.read_text(errors='replace')[-2_000:]}")
            return usage.ru_utime + usage.ru_stime
        finally:
            serving.terminate()
            serving.wait()


def ours(steps: int) -> Callable[[str, Path], Sequence[str]]:
    options = ["--task", "Say the numbers.", "--verify", "test -e done", "--sandbox", "bubblewrap"]
    options += ["--model", "scripted", "--price", "free", "--max-iterations", str(steps + 5)]
    options += ["--max-tokens", "500000", "--json"]
    program = [sys.executable, "-m", "zubble_queue.cli"]
    return lambda url, folder: [*program, "--home", str(folder), "run", *options, "--endpoint", url]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mini", type=Path, help="a Python that has mini-swe-agent")
    parser.add_argument("--inspect", type=Path, help="a Python that has inspect-ai and openai")
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--many", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    harnesses: dict[str, Callable[[int], Callable[[str, Path], Sequence[str]]]] = {"zubble": ours}
    if options.mini:
        mini = str(options.mini.absolute())
        harnesses["mini"] = lambda _: lambda url, _: [mini, str(PEERS / "mini_swe.py"), url]
    if options.inspect:
        inspect = str(options.inspect.absolute())
        harnesses["inspect"] = lambda _: (
            lambda url, folder: [*(inspect, str(PEERS / "inspecting.py"), url, str(folder))]
        )
    seconds: dict[str, list[float]] = {kind: [] for kind in harnesses}
    for _ in range(options.rounds):  # in turns, so that a busy minute meets all of them
        for kind, command in harnesses.items():
            few = cpu_seconds(kind, options.few, command(options.few))
            many = cpu_seconds(kind, options.many, command(options.many))
            seconds[kind].append((many - few) / (options.many - options.few))
    each = {kind: statistics.median(found) for kind, found in seconds.items()}
    report = {
        "schema": "zubble.benchmark.agent_step/1",
        "steps": [options.few, options.many],
        "cpu_ms_per_step": {kind: round(1_000 * found, 2) for kind, found in each.items()},
        "ratio_to_zubble": {kind: round(found / each["zubble"], 2) for kind, found in each.items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
