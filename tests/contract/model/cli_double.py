"""Speaks as one of the programs of the `cli` backend: FORMAT and a file with turns are its arguments.

A turn is {"pieces": [[channel, text], …], "usage": …, "delay": …, "pace": …, "fault": …, "after": …}. The
prompt on standard input ends with the conversation as a JSON array; its assistant messages choose the turn.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

OUT = sys.stdout.buffer


def line(value):
    OUT.write(json.dumps(value).encode() + b"\n")
    OUT.flush()


def piece(kind, channel, text):
    if kind == "text":
        OUT.write(text.encode())
        OUT.flush()
    elif kind == "claude":
        name = {"text": "text", "reasoning": "thinking"}[channel]
        delta = {"type": f"{name}_delta", name: text}
        line({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": delta}})
    elif kind == "gemini":
        line({"type": "message", "role": "assistant", "content": text, "delta": True})
    else:
        name = {"text": "message", "reasoning": "reasoning"}[channel]
        line({"type": f"assistant.{name}_delta", "data": {"deltaContent": text}})


def result(kind, finish, usage):
    if kind == "claude":
        said = "max_tokens" if finish == "length" else "end_turn"
        line({"type": "stream_event", "event": {"type": "message_delta", "delta": {"stop_reason": said}}})
        cached = usage["cached"] if usage else 0
        counts = {
            "input_tokens": usage["prompt"] - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage["completion"],
        } if usage else {}  # fmt: skip
        line({"type": "result", "subtype": "success", "is_error": False, "result": "", "usage": counts})
    elif kind == "gemini":
        stats = {
            "total_tokens": usage["prompt"] + usage["completion"],
            "input_tokens": usage["prompt"],
            "output_tokens": usage["completion"],
            "cached": usage["cached"],
        } if usage else {}  # fmt: skip
        line({"type": "result", "status": "success", "stats": stats})
    elif kind == "copilot":
        if usage:
            counts = {"inputTokens": usage["prompt"], "outputTokens": usage["completion"]}
            Path("usage.json").write_text(json.dumps({"modelMetrics": {"m": {"usage": counts}}}))
        line({"type": "result", "exitCode": 0, "usage": {"premiumRequests": 1}})


def stall(_):
    time.sleep(3_600)


def child(kind):
    mark = Path(sys.argv[3])
    code = f"import time; open({str(mark)!r}, 'w').close(); time.sleep(600)"
    subprocess.Popen([sys.executable, "-S", "-c", code])
    while not mark.exists():
        time.sleep(0.01)
    stall(kind)


def leave(_):
    sys.stderr.write("Error: not logged in\n")
    sys.exit(3)


def show(kind):
    here = {"env": dict(os.environ), "cwd": str(Path.cwd()), "files": [p.name for p in Path().iterdir()]}
    piece(kind, "text", json.dumps(here))


def report(kind):
    if kind == "claude":
        line({"type": "result", "is_error": True, "api_error_status": 429, "result": "API Error: slow down"})
    elif kind == "gemini":
        line({"type": "result", "status": "error", "error": {"type": "ApiError", "message": "slow down"}})
    else:
        line({"type": "session.error", "data": {"statusCode": 429, "message": "slow down"}})


FAULTS = {
    "stall": stall,
    "child": child,
    "eof": lambda _: sys.exit(0),
    "exit": leave,
    "kill": lambda _: os.kill(os.getpid(), 9),
    "malformed": lambda _: OUT.write(b'{"type": "resu\n'),
    "notice": lambda _: OUT.write(b"Loaded cached credentials.\n"),
    "environment": show,
    "error": report,
}


def main():
    kind, turns = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    prompt = sys.stdin.read()
    talk = json.loads(prompt[prompt.index("\n\n[") :])
    asked = sum(message["role"] == "assistant" for message in talk)
    turn = turns[min(asked, len(turns) - 1)]
    time.sleep(turn["delay"])
    for number, (channel, text) in enumerate(turn["pieces"]):
        if number == turn["after"] and turn["fault"]:
            FAULTS[turn["fault"]](kind)
        piece(kind, channel, text)
        time.sleep(turn["pace"])
    if turn["fault"] and turn["after"] >= len(turn["pieces"]):
        FAULTS[turn["fault"]](kind)
    result(kind, turn["finish"], turn["usage"])


main()
