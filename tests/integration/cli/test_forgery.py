"""HumanEval by real workers in bubblewrap: right solutions are verified, forged ones are not."""

from __future__ import annotations

import base64
import ctypes
import json
import shutil
import subprocess
import sys

import pytest

PROMPT = 'def add(a, b):\n    """The sum of a and b."""\n'
TEST = "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(-1, 1) == 0\n"
WRONG = "def add(a, b):\n    return 5\n"

ATTEMPTS = {
    "right": "def add(a, b):\n    return a + b\n",
    "wrong": WRONG,
    "leaves": f"import os\nos._exit(0)\n{WRONG}",
    "prints": f"print('PASSED')\n{WRONG}",
    "overwrites": (
        "import os, sys\n"
        "for folder in ('/verify', '/work', '/usr/lib/python3', os.path.dirname(os.__file__)):\n"
        "    for name in ('check.py', 'task.json', 'sitecustomize.py', 'random.py'):\n"
        "        try: open(f'{folder}/{name}', 'w').write('import os; os._exit(0)')\n"
        f"        except OSError: pass\n{WRONG}"
    ),
    "looks-up": f"print(open('/verify/task.json').read())\n{WRONG}",
    "equal": (
        "class Same(int):\n    def __eq__(self, other): return True\ndef add(a, b):\n    return Same(9)\n"
    ),
    "kills": f"import os\nos.kill(os.getppid(), 9)\nos.kill(1, 9)\n{WRONG}",
    "planted": WRONG,
}
PLANTED = ("sitecustomize.py", "usercustomize.py", "random.py", "json.py", "check.py", "python3", "evil.pth")


def turns(name, solution):
    files = {"solution.py": solution}
    if name == "planted":
        files |= dict.fromkeys(PLANTED, "import os; os._exit(0)\n")
    writing = "; ".join(
        f"echo {base64.b64encode(content.encode()).decode()} | base64 -d > {file}"
        for file, content in files.items()
    )
    return [
        json.dumps({"action": "plan", "steps": ["write it"]}),
        json.dumps(
            {"action": "run", "plan_step_id": 1, "command": f"{writing}; chmod +x *", "reasoning": "all"}
        ),
        json.dumps({"action": "submit", "report": "done"}),
        json.dumps({"action": "report", "report": "not accepted"}),
    ]


@pytest.fixture
def forgers(user, missing_part):
    """A user whose model answers each task with one of the attempts."""
    if shutil.which("bwrap") is None:
        missing_part("bubblewrap is not installed.")
    rules = [
        {"when": {"contains": f"(Forgery/{name})"}, "turns": turns(name, solution)}
        for name, solution in ATTEMPTS.items()
    ]
    script = user.write("script.json", json.dumps({"rules": rules}))
    lines = [
        {"task_id": f"Forgery/{name}", "prompt": PROMPT, "entry_point": "add", "test": TEST}
        for name in ATTEMPTS
    ]
    user.write("tasks.jsonl", lines)
    command = [sys.executable, "-m", "zubble_queue.cli", "mock-endpoint", "--script", str(script), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        user.endpoint = json.loads(process.stdout.readline())["url"]
        yield user
        process.terminate()


def test_only_the_right_solution_is_verified(forgers):
    flags = ["--batch", "b", "--model", "forger", "--endpoint", forgers.endpoint, "--price", "free", "--wait"]

    said = forgers.zubble("batch", "submit", "tasks.jsonl", *flags, "--json")

    assert (said.code, said.json["total"], said.json["sealed"]) == (1, len(ATTEMPTS), len(ATTEMPTS)), said.err
    exported = forgers.zubble("batch", "export", "b", "--format", "humaneval").out
    samples = {sample["task_id"]: sample for sample in map(json.loads, exported.splitlines())}
    assert [name for name, sample in samples.items() if sample["passed"]] == ["Forgery/right"]
    assert samples["Forgery/right"]["completion"] == ATTEMPTS["right"]
    assert samples["Forgery/wrong"]["result"] == "failed: AssertionError"
    if ctypes.CDLL(None).syscall(444, None, 0, 1) > 0:  # Landlock's version; without it the tests can be read
        assert "PermissionError" in samples["Forgery/looks-up"]["result"]
