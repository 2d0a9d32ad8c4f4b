"""The check of a function, run in the verify sandbox as `python3 -I -S /verify/check.py`.

Exit 0 only after the last assertion held; 1 when the candidate failed; 3 when the check itself cannot be run.

Two processes. The candidate's code lives in a child and never reaches this one: its results come over a pipe
as plain data, so nothing it overrides, prints, patches or kills can make an assertion hold. The child is
forked before the tests are read, and Landlock keeps it from reading them. (On a kernel without Landlock a
candidate could look its answers up, though still not forge the verdict.)

Beside this file lies task.json: {"prompt", "entry_point", "test", "cpu_seconds", "wall_seconds"}. The
solution is ./solution.py. Needs the standard library only, from Python 3.8 on.
"""

# ruff: noqa: BLE001, S102, T201, PTH118, PTH120, PTH123, PTH208
# Here every exception is a verdict, running the task's code is the purpose, the verdict is printed,
# and pathlib would double the start-up time.

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
import types
from typing import Any, Callable, Iterator, NoReturn  # noqa: UP035  # Python 3.8

HERE = os.path.dirname(os.path.realpath(__file__))
SOLUTION = "solution.py"
SOLUTION_BYTES = 1_048_576
FRAME_BYTES = 16_777_216
REASON_CHARS = 300

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
LANDLOCK_CREATE, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILE, READ_DIR = 4, 8


class CandidateFailed(Exception):
    """The candidate raised, died, or answered with something that is not plain data."""


class Candidate:
    """Stands for the function under test; calling it calls the real one in the child."""

    def __init__(self) -> None:
        request_out, self._requests = os.pipe()
        self._replies, reply_in = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            serve(request_out, reply_in)
        os.close(request_out)
        os.close(reply_in)

    def load(self, task: dict[str, Any]) -> None:
        self._ask([task["prompt"], task["entry_point"], task["cpu_seconds"]])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return decoded(self._ask([encoded(args), encoded(kwargs)]))

    def kill(self) -> None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):  # already gone, or its group not made yet
                kill(self.pid, signal.SIGKILL)

    def _ask(self, request: Any) -> Any:
        try:
            write_frame(self._requests, request)
            kind, content = read_frame(self._replies)
        except (OSError, EOFError):
            raise CandidateFailed(self._death()) from None
        except (TypeError, ValueError, RecursionError):
            raise CandidateFailed("the candidate wrote something that is not a result") from None
        if kind != "value":
            raise CandidateFailed(str(content))
        return content

    def _death(self) -> str:
        status = os.waitpid(self.pid, 0)[1]
        if not os.WIFSIGNALED(status):
            return "the candidate ended its process instead of returning"
        number = os.WTERMSIG(status)
        return "timed out" if number == signal.SIGXCPU else f"the candidate was killed by signal {number}"


def main() -> int:
    forbid_tracing()
    candidate = Candidate()
    try:
        with open(os.path.join(HERE, "task.json"), encoding="utf-8") as file:
            task = json.load(file)
        limit_wall_time(task["wall_seconds"], candidate)
        namespace = tests(task, candidate)
    except Exception as broken:
        return verdict(candidate, 3, f"the check cannot be run: {described(broken)}")
    try:
        candidate.load(task)
        namespace["check"](candidate)
    except BaseException as failed:  # an assertion, or whatever a wrong result led to
        text = str(failed) if isinstance(failed, CandidateFailed) else described(failed)
        return verdict(candidate, 1, text if text == "timed out" else f"failed: {text}")
    return verdict(candidate, 0, "passed")


def tests(task: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
    """The prompt's helpers and the task's `check`, with the proxy in place of the function."""
    namespace: dict[str, Any] = {"__name__": "check"}
    exec(compile(task["prompt"], "prompt.py", "exec"), namespace)
    namespace[task["entry_point"]] = candidate
    exec(compile(task["test"], "test.py", "exec"), namespace)
    if "check" not in namespace:
        raise NameError("the test does not define check")
    return namespace


def verdict(candidate: Candidate, code: int, text: str) -> int:
    candidate.kill()
    print("".join(char if char.isprintable() else "?" for char in text)[:REASON_CHARS])
    return code


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def limit_wall_time(seconds: float, candidate: Candidate) -> None:
    def stop(*_: Any) -> None:
        os.write(1, b"timed out\n")
        candidate.kill()
        os._exit(1)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def forbid_tracing() -> None:
    """No process of the same user may read or change this one's memory."""
    if prctl(PR_SET_DUMPABLE, 0) != 0:
        raise OSError("PR_SET_DUMPABLE is refused")


def prctl(option: int, value: int) -> int:
    zero = ctypes.c_ulong(0)
    return int(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), zero, zero, zero))


# The child's side.


def serve(requests: int, replies: int) -> NoReturn:
    """Load the solution and answer calls until the pipe closes."""
    try:
        confine(requests, replies)
        function = loaded(*read_frame(requests))
        write_frame(replies, ["value", None])
        while True:
            args, kwargs = read_frame(requests)
            write_frame(replies, answer(function, decoded(args), decoded(kwargs)))
    except EOFError:
        os._exit(0)
    except BaseException as error:  # whatever the solution raised, SystemExit included
        write_frame(replies, ["raised", described(error)])
    finally:
        os._exit(1)


def answer(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return ["value", encoded(function(*args, **kwargs))]
    except BaseException as error:
        return ["raised", described(error)]


def loaded(prompt: str, entry_point: str, cpu_seconds: int) -> Callable[..., Any]:
    """The candidate's function, from a module that starts with the prompt's imports and helpers."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    with open(SOLUTION, "rb") as file:
        source = file.read(SOLUTION_BYTES)
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    exec(compile(prompt, "prompt.py", "exec"), module.__dict__)
    stub = module.__dict__.get(entry_point)
    exec(compile(source, SOLUTION, "exec"), module.__dict__)
    function = module.__dict__.get(entry_point)
    if function is stub or not callable(function):
        raise NameError(f"{SOLUTION} does not define {entry_point}")
    return function  # type: ignore[no-any-return]  # a function of the candidate's


def confine(requests: int, replies: int) -> None:
    """Own session, no way to speak but the pipe; ends with its parent; cannot read the tests."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    low, high = sorted((requests, replies))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    with contextlib.suppress(ValueError, OSError):  # refused where the sandbox keeps its own limit
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hide(HERE)


def hide(folder: str) -> bool:
    """Let this process read every place but the folder; False where the kernel has no Landlock."""
    libc = ctypes.CDLL(None)
    attributes = struct.pack("=Q", READ_FILE | READ_DIR)
    ruleset = libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    for path in everything_but(folder):
        allow_reading(libc, ruleset, path)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    return bool(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0) == 0)


def everything_but(folder: str) -> Iterator[str]:
    """The siblings of the folder and of each folder above it."""
    while folder != "/":
        above, name = os.path.split(folder)
        with contextlib.suppress(OSError):  # a folder we may not list; what is in it stays unreadable
            yield from (os.path.join(above, sibling) for sibling in os.listdir(above) if sibling != name)
        folder = above


def allow_reading(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone, or not ours to see: it stays unreadable
    mode = os.fstat(handle).st_mode
    if not stat.S_ISLNK(mode):
        access = READ_FILE | READ_DIR if stat.S_ISDIR(mode) else READ_FILE
        libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("=Qi", access, handle), 0)
    os.close(handle)


# Plain data over the pipe: a length, then JSON of [type, content].


def encoded_items(values: Any) -> list[Any]:
    return [encoded(value) for value in values]


def decoded_items(pairs: Any) -> list[Any]:
    return [decoded(pair) for pair in pairs]


ENCODERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (bool, bool),
    (int, hex),
    (float, float.hex),
    (complex, lambda value: [value.real.hex(), value.imag.hex()]),
    (str, str),
    (bytes, bytes.hex),
    (list, encoded_items),
    (tuple, encoded_items),
    (set, encoded_items),
    (frozenset, encoded_items),
    (dict, lambda value: [encoded_items(pair) for pair in value.items()]),
)
DECODERS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "complex": lambda parts: complex(*map(float.fromhex, parts)),
    "str": str,
    "bytes": bytes.fromhex,
    "list": decoded_items,
    "tuple": lambda pairs: tuple(decoded_items(pairs)),
    "set": lambda pairs: set(decoded_items(pairs)),
    "frozenset": lambda pairs: frozenset(decoded_items(pairs)),
    "dict": lambda pairs: dict(map(decoded_items, pairs)),
}


def encoded(value: Any) -> Any:
    if value is None:
        return ["none", None]
    for kind, encode in ENCODERS:
        if isinstance(value, kind):
            return [kind.__name__, encode(value)]
    raise TypeError(f"a value of type {type(value).__name__} is not plain data")


def decoded(pair: Any) -> Any:
    try:
        name, content = pair
        return None if name == "none" else DECODERS[name](content)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError):
        raise CandidateFailed("the candidate wrote something that is not a result") from None


def write_frame(handle: int, value: Any) -> None:
    data = json.dumps(value).encode()
    rest = memoryview(struct.pack("=I", len(data)) + data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def read_frame(handle: int) -> Any:
    size = struct.unpack("=I", read_exactly(handle, 4))[0]
    if size > FRAME_BYTES:
        raise ValueError("too large")
    return json.loads(read_exactly(handle, size))


def read_exactly(handle: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(handle, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


if __name__ == "__main__":
    sys.exit(main())
