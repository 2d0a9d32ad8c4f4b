"""The check passes what is right, and nothing a candidate does makes a wrong function pass."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"

FORGERIES = {
    "leaves with 0 at import": f"import os\nos._exit(0)\n{WRONG}",
    "leaves with 0 in the call": "import os\ndef add(a, b):\n    os._exit(0)\n",
    "raises SystemExit(0) at import": f"raise SystemExit(0)\n{WRONG}",
    "raises SystemExit(0) in the call": "def add(a, b):\n    raise SystemExit(0)\n",
    "raises KeyboardInterrupt": "def add(a, b):\n    raise KeyboardInterrupt\n",
    "prints PASSED": f"print('PASSED')\nprint('passed')\n{WRONG}",
    "leaves with 0 at exit": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "kills the checker": f"import os\nos.kill(os.getppid(), 9)\n{WRONG}",
    "interrupts the checker": f"import os\nos.kill(os.getppid(), 2)\n{WRONG}",
    "stops itself": f"import os\nos.kill(os.getpid(), 15)\n{WRONG}",
    "is equal to everything": (
        "class Same(int):\n"
        "    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "    def __bool__(self): return True\n"
        "    __hash__ = int.__hash__\n"
        "def add(a, b):\n    return Same(99)\n"
    ),
    "is an object of its own": (
        "class Same:\n    def __eq__(self, other): return True\ndef add(a, b):\n    return Same()\n"
    ),
    "patches builtins": (
        "import builtins\n"
        "builtins.AssertionError = None\nbuiltins.compile = builtins.exec = lambda *a, **k: None\n"
        f"builtins.all = lambda *a: True\n{WRONG}"
    ),
    "patches json and os": (
        "import json, os\njson.loads = lambda *a: ['value', ['int', '0x5']]\n"
        f"os._exit = lambda *a: None\n{WRONG}"
    ),
    "writes frames to every descriptor": (
        "import os, struct\n"
        "frame = b'[\"value\", null]'\n"
        "for number in range(256):\n"
        "    try: os.write(number, struct.pack('=I', len(frame)) + frame)\n"
        "    except OSError: pass\n" + WRONG
    ),
    "writes garbage to every descriptor": (
        "import os\nfor number in range(256):\n"
        "    try: os.write(number, b'\\xff' * 4096)\n    except OSError: pass\n" + WRONG
    ),
    "closes every descriptor": f"import os\nos.closerange(0, 256)\n{WRONG}",
    "answers from a grandchild": (
        "import os\ndef add(a, b):\n    if os.fork() == 0:\n        return a + b + 1\n    os._exit(0)\n"
    ),
    "returns a nest without end": ("def add(a, b):\n    nest = []\n    nest.append(nest)\n    return nest\n"),
    "returns a deep nest": (
        "def add(a, b):\n    nest = 5\n    for _ in range(900): nest = [nest]\n    return nest\n"
    ),
    "returns too much": "def add(a, b):\n    return 'x' * (1 << 25)\n",
    "returns a function": "def add(a, b):\n    return lambda: 5\n",
    "is not there": None,
    "defines something else": "def sub(a, b):\n    return a - b\n",
    "keeps the prompt's empty body": "from math import *\n",
    "is not Python": "def add(a, b:\n",
    "is not text": "\0\0\0",
    "rebinds the entry point to a number": "add = 5\n",
}


@pytest.mark.parametrize("solution", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forgery_does_not_pass(check, solution):
    result = check(solution)

    assert result.returncode != 0, result.stdout


@pytest.mark.parametrize(
    "name",
    ["sitecustomize.py", "usercustomize.py", "random.py", "json.py", "struct.py", "task.json", "check.py"],
)
def test_a_planted_file_is_not_used_by_the_check(check, name):
    planted = "import os\nos._exit(0)\n"

    result = check(WRONG, files={name: planted})

    assert result.returncode == 1
    assert "AssertionError" in result.stdout


def test_a_planted_pth_file_is_not_used_by_the_check(check):
    result = check(WRONG, files={"evil.pth": "import os; os._exit(0)\n"})

    assert result.returncode == 1


def test_a_check_file_that_the_candidate_overwrites_changes_nothing(check):
    overwrite = (
        "import os\n"
        "try:\n"
        "    for name in ('check.py', 'task.json'):\n"
        "        open(os.path.join(os.environ['VERIFY'], name), 'w').write('import os; os._exit(0)')\n"
        "except OSError: pass\n"
    )

    result = check(overwrite + WRONG)

    assert result.returncode != 0


def test_the_right_function_passes(check):
    result = check(RIGHT)

    assert (result.returncode, result.stdout) == (0, "passed\n")


def test_the_right_function_passes_whatever_it_prints(check):
    result = check(f"import sys\nprint('x' * 100_000)\nsys.stderr.write('y' * 100_000)\n{RIGHT}")

    assert (result.returncode, result.stdout) == (0, "passed\n")


def test_the_first_failing_assertion_is_named(check):
    result = check(WRONG)

    assert (result.returncode, result.stdout) == (1, "failed: AssertionError\n")


def test_what_the_candidate_raises_is_reported_without_control_characters(check):
    result = check("def add(a, b):\n    raise ValueError('\\x1b[2J no')\n")

    assert (result.returncode, result.stdout) == (1, "failed: ValueError: ?[2J no\n")


def test_a_loop_without_end_times_out_by_its_own_cpu_time(check):
    result = check("def add(a, b):\n    while True: pass\n", cpu_seconds=1)

    assert (result.returncode, result.stdout) == (1, "timed out\n")


def test_a_sleep_without_end_times_out_by_the_wall_clock(check):
    result = check("import time\ndef add(a, b):\n    time.sleep(1000)\n", wall_seconds=1)

    assert (result.returncode, result.stdout) == (1, "timed out\n")


def test_a_candidate_that_stops_reading_times_out(check):
    task = {
        "prompt": "def add(a, b): ...\n",
        "entry_point": "add",
        "test": "def check(candidate):\n    candidate('x' * 2_000_000, 1)\n",
    }
    solution = "import time\ntime.sleep(1000)\ndef add(a, b): ...\n"

    assert check(solution, task, wall_seconds=1).stdout == "timed out\n"


def test_a_test_that_cannot_be_run_is_not_the_candidates_fault(check):
    broken = {"prompt": "", "entry_point": "add", "test": "def check(candidate:\n"}

    result = check(RIGHT, broken)

    assert result.returncode == 3
    assert result.stdout.startswith("the check cannot be run: SyntaxError")


VALUES = (
    "None, True, False, 0, -7, 2**200, 1.5, -0.0, float('inf'), 'ä\\ud800\\n', b'\\x00\\xff', "
    "[1, [2]], (1, (2,)), {1, 2}, frozenset({3}), {'a': [1], (1, 2): None}, 1j"
)


def test_plain_data_crosses_the_pipe_both_ways_with_its_type(check):
    task = {
        "prompt": "def same(value): ...\n",
        "entry_point": "same",
        "test": (
            "def check(candidate):\n"
            f"    for value in ({VALUES}):\n"
            "        back = candidate(value)\n"
            "        assert type(back) is type(value), (value, back)\n"
            "        assert repr(back) == repr(value), (value, back)\n"
            "    nan = candidate(float('nan'))\n"
            "    assert nan != nan\n"
            "    assert candidate(value=[1]) == [1]\n"
        ),
    }

    result = check("def same(value):\n    return value\n", task)

    assert (result.returncode, result.stdout) == (0, "passed\n")


def test_containers_of_the_library_count_as_what_they_are(check):
    task = {
        "prompt": "def count(text): ...\n",
        "entry_point": "count",
        "test": "def check(candidate):\n    assert candidate('aab') == {'a': 2, 'b': 1}\n",
    }
    solution = "from collections import Counter\ndef count(text):\n    return Counter(text)\n"

    assert check(solution, task).returncode == 0


def test_helpers_of_the_prompt_are_there_for_the_tests_and_for_the_candidate(check):
    task = {
        "prompt": "import math\ndef twice(x): return 2 * x\n\ndef root(x):\n    '''The root of twice x.'''\n",
        "entry_point": "root",
        "test": "def check(candidate):\n    assert math.isclose(candidate(2), twice(1))\n",
    }

    assert check("def root(x):\n    return math.sqrt(twice(x))\n", task).returncode == 0


def has_landlock() -> bool:
    import ctypes

    return ctypes.CDLL(None).syscall(444, None, 0, 1) > 0


LOOKING = {
    "opens the tests": "open(os.path.join(os.environ['VERIFY'], 'task.json')).read()",
    "lists the folder": "os.listdir(os.environ['VERIFY'])",
    "goes through /proc/self/root": "open('/proc/self/root' + os.environ['VERIFY'] + '/task.json').read()",
    "goes through the parent's root": (
        "open(f'/proc/{os.getppid()}/root' + os.environ['VERIFY'] + '/task.json').read()"
    ),
    "reads the checker's memory": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "writes the checker's memory": "open(f'/proc/{os.getppid()}/mem', 'r+b').close()",
    "asks a program of another kind": (
        "subprocess.run(['cat', os.environ['VERIFY'] + '/task.json'], check=True, capture_output=True)"
    ),
}


@pytest.mark.parametrize("look", LOOKING.values(), ids=LOOKING.keys())
def test_the_candidate_cannot_look_its_answers_up(check, look):
    if not has_landlock():
        pytest.skip("This kernel has no Landlock, so a candidate could read the tests.")
    solution = f"import os, subprocess\n{look}\n{RIGHT}"

    result = check(solution)

    assert result.returncode == 1
    assert "Permission" in result.stdout or "CalledProcessError" in result.stdout, result.stdout


def test_the_candidate_still_reads_the_rest(check):
    solution = f"import os, random, decimal\nopen('data.txt').read()\nos.listdir('/usr')\n{RIGHT}"

    assert check(solution, files={"data.txt": "x"}).stdout == "passed\n"


def test_nothing_is_left_running(check, tmp_path):
    marker = f"left-{os.getpid()}-{tmp_path.name}"
    solution = (
        f"import os, subprocess\nif os.fork() == 0:\n    os.execlp('sleep', '{marker}', '300')\n{RIGHT}"
    )

    assert check(solution).returncode == 0
    assert marker not in list(_running())


def _running() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue


def test_every_reference_solution_of_humaneval_passes(check, humaneval_tasks):
    results = {
        task["task_id"]: check(task["prompt"] + task["canonical_solution"], task) for task in humaneval_tasks
    }

    assert len(results) == 164
    assert {name: result.stdout for name, result in results.items() if result.returncode} == {}


@pytest.mark.slow
def test_no_solution_of_another_task_passes(check, humaneval_tasks):
    rotated = zip(humaneval_tasks, [*humaneval_tasks[1:], humaneval_tasks[0]], strict=True)

    passed = [
        task["task_id"]
        for task, other in rotated
        if check(other["prompt"] + other["canonical_solution"], task).returncode == 0
    ]

    assert passed == []
