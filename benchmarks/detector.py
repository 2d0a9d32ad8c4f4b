"""CPU of the repetition detector against the CPU of receiving the same stream, in one run.

    python benchmarks/detector.py [--events 4000] [--rounds 5] [--json]

A server in another process streams chat completion chunks over HTTP; this process receives them with httpx,
splits the events and parses the JSON. The same deltas then go through a StreamGuard. The ratio of the two CPU
times (the least of all rounds, each) is printed for prose, code, a table and a loop: with one token an event
and with one to four, sent back to back (the cheapest way to receive, so the hardest for the detector), and
with one to four sent one by one, as a model does. Exit code 1 when a ratio exceeds 0.15.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from itertools import islice
from time import process_time

import httpx

from zubble_worker.observers.ladder import Ladder, Rung
from zubble_worker.observers.repetition import StreamGuard

LIMIT = 0.15
"""Of the CPU of receiving the stream."""
OBSERVING = Ladder((Rung(50, "nudge"), Rung(500, "observe"), Rung(3_000, "observe")))
"""Never cuts, so that a loop is paid for to its end."""
STREAMS = {"1": (1, 0.0), "1-4": (4, 0.0), "1-4 paced": (4, 0.0002)}
"""Most tokens of an event, and seconds between two events."""
PACED_SHARE = 0.1
"""Of the events, in a paced stream: it takes its time."""
TOKEN = re.compile(r"\s*(?:\w+|\S)")
SENTENCE = """the agent read a file then ran its tests and found one value wrong because parser state was kept
between calls so it wrote smaller function with clear name, moved check before loop. Next step: build!"""
WORDS = SENTENCE.split()


@dataclass(frozen=True)
class Row:
    text: str
    tokens_per_event: str
    events: int
    receive_us_per_event: float
    detector_us_per_event: float
    ratio: float


def prose(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=20_000))


def code(chance: random.Random) -> str:
    names = [f"{chance.choice(WORDS).strip('.,:!')}_{number}" for number in range(60)]

    def line() -> str:
        target, function, value = chance.choices(names, k=3)
        return f"    {target} = {function}({value}, {chance.randrange(99)})\n"

    return "".join(line() for _ in range(5_000))


def table(chance: random.Random) -> str:
    return "".join(f"| row {n} | {chance.randrange(999)} | true | null | 0.0 |\n" for n in range(5_000))


def loop(_: random.Random) -> str:
    return "I will check the file again, and then I will write the answer. " * 4_000


TEXTS = {"prose": prose, "code": code, "table": table, "loop": loop}


def deltas(kind: str, events: int, most_tokens: int) -> list[str]:
    """So many events of one token or more."""
    chance = random.Random(kind)
    tokens = iter(TOKEN.findall(TEXTS[kind](chance)))
    return ["".join(islice(tokens, chance.randint(1, most_tokens))) for _ in range(events)]


def chunk(content: str) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None}
    body = {
        "id": "chatcmpl-7b1f09c2d4e84f0b",
        "object": "chat.completion.chunk",
        "created": 1_780_000_000,
        "model": "model",
        "system_fingerprint": "fp_0",
        "choices": [choice],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


# -- the server's process -------------------------------------------------------------------------------


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, events: int) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    _, kind, stream, _ = request.split(b" ")[1].decode().replace("%20", " ").split("/")
    most_tokens, pause_seconds = STREAMS[stream]
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for delta in deltas(kind, int(events * PACED_SHARE) if pause_seconds else events, most_tokens):
        event = chunk(delta)
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        if pause_seconds:
            await writer.drain()
            await asyncio.sleep(pause_seconds)
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()
    writer.close()


async def serve(events: int) -> None:
    server = await asyncio.start_server(lambda r, w: answer(r, w, events), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -- the client's process -------------------------------------------------------------------------------


async def receive(client: httpx.AsyncClient, url: str) -> tuple[list[str], float]:
    """The deltas, and the CPU seconds they cost."""
    started = process_time()
    found: list[str] = []
    async with client.stream("GET", url) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                found.append(event["choices"][0]["delta"]["content"])
    return found, process_time() - started


def detect(found: list[str]) -> float:
    guard = StreamGuard(OBSERVING)
    started = process_time()
    for delta in found:
        guard.feed("text", delta)
    return process_time() - started


async def measure(port: int, kind: str, stream: str, rounds: int) -> Row:
    receiving: list[float] = []
    detecting: list[float] = []
    found: list[str] = []
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        for _ in range(rounds):
            found, seconds = await receive(client, f"http://127.0.0.1:{port}/{kind}/{stream}/")
            receiving.append(seconds / len(found) * 1e6)
            detecting.append(detect(found) / len(found) * 1e6)
    receive_us, detector_us = min(receiving), min(detecting)
    ratio = round(detector_us / receive_us, 4)
    return Row(kind, stream, len(found), round(receive_us, 2), round(detector_us, 3), ratio)


async def measure_all(port: int, rounds: int) -> list[Row]:
    return [await measure(port, kind, stream, rounds) for stream in STREAMS for kind in TEXTS]


def report(rows: list[Row], *, as_json: bool) -> None:
    worst = max(row.ratio for row in rows)
    if as_json:
        summary = {"schema": "zubble.benchmark.detector/1", "worst_ratio": worst, "limit": LIMIT}
        print(json.dumps({**summary, "rows": [asdict(row) for row in rows]}))
        return
    print(f"{'text':8} {'tokens/event':14} {'receive':>12} {'detector':>12} {'ratio':>8}")
    for row in rows:
        costs = f"{row.receive_us_per_event:9.1f} us {row.detector_us_per_event:9.2f} us"
        print(f"{row.text:8} {row.tokens_per_event:14} {costs} {row.ratio:8.1%}")
    print(f"worst {worst:.1%}, limit {LIMIT:.0%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.events))
    command = [sys.executable, __file__, "--serve", "--events", str(options.events)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            rows = asyncio.run(measure_all(int(server.stdout.readline()), options.rounds))
        finally:
            server.kill()
    report(rows, as_json=options.json)
    return 1 if max(row.ratio for row in rows) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
