"""Ask the served model a hundred prompts at temperature 0 and keep what the detector says of each reply.

    python -m benchmarks.real_model.listen --url http://127.0.0.1:8077 --out replies.jsonl

Writes one line a reply: prompt, text, why it ended, tokens as the model and as the detector count them, and
the rungs reached. A reply that the detector kills is closed there and then, as a worker does. Replies already
in the file are not asked for again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from benchmarks.real_model.prompts import OPENINGS, QUESTIONS
from zubble_worker.observers.ladder import GRADUATED
from zubble_worker.observers.repetition import StreamGuard

SILENCE_SECONDS = 600


def asked() -> list[dict[str, Any]]:
    """What is sent for each prompt, numbered: openings to the completion endpoint, questions as chats."""
    openings = [{"path": "/v1/completions", "body": {"prompt": opening}} for opening in OPENINGS]
    chats = [
        {"path": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": question}]}}
        for question in QUESTIONS
    ]
    return [{"number": number, **ask} for number, ask in enumerate([*openings, *chats], 1)]


async def listen(client: httpx.AsyncClient, ask: dict[str, Any], max_tokens: int) -> dict[str, Any]:
    """One reply, heard as a worker hears it."""
    guard = StreamGuard(GRADUATED.validate_reachable(max_tokens))
    body = {**ask["body"], "temperature": 0, "max_tokens": max_tokens, "stream": True}
    text, pieces, ended = "", 0, "cut"
    async with client.stream("POST", ask["path"], json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            choice = json.loads(line[6:])["choices"][0]
            piece = choice.get("text") or choice.get("delta", {}).get("content") or ""
            text, pieces = text + piece, pieces + bool(piece)
            if piece and guard.feed("text", piece):
                break
            ended = choice.get("finish_reason") or ended
    return {
        "number": ask["number"],
        "path": ask["path"],
        "prompt": ask["body"].get("prompt") or ask["body"]["messages"][0]["content"],
        "ended": "cut" if guard.cut else ended,
        "model_tokens": pieces,
        "tokens": guard.tokens,
        "fired": [one.as_dict() for one in guard.fired],
        "text": text,
    }


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8077")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-tokens", type=int, default=4_000)
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    known = [json.loads(line) for line in options.out.open()] if options.out.exists() else []
    missing = [ask for ask in asked() if ask["number"] not in {reply["number"] for reply in known}]
    turns = asyncio.Semaphore(options.at_once)

    anew = httpx.Limits(max_keepalive_connections=0)  # the server may close one just as it is used again
    async with httpx.AsyncClient(base_url=options.url, timeout=SILENCE_SECONDS, limits=anew) as client:

        async def one(ask: dict[str, Any]) -> None:
            async with turns:
                reply = await listen(client, ask, options.max_tokens)
            with options.out.open("a") as out:
                out.write(json.dumps(reply) + "\n")
            print(f"{reply['number']:3} {reply['ended']:6} {reply['tokens']:5}", flush=True)

        await asyncio.gather(*map(one, missing))


if __name__ == "__main__":
    asyncio.run(main())
