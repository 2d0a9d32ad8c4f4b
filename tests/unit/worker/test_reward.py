"""A reward is a number or numbers by name; that there is none has three reasons, and none of them is 0."""

from __future__ import annotations

import errno
import json
import os

import pytest

from zubble_worker import reward

JSON, TEXT = "/logs/verifier/reward.json", "/logs/verifier/reward.txt"


class Written:
    """What a check left behind, in place of its sandbox."""

    def __init__(self, **files: bytes | Exception) -> None:
        self._files = {f"/logs/verifier/reward.{kind}": data for kind, data in files.items()}

    async def read(self, path: str, *, max_bytes: int) -> bytes:
        data = self._files.get(path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path))
        if isinstance(data, Exception):
            raise data
        if len(data) > max_bytes:
            raise ValueError(f"the file is larger than {max_bytes} bytes")
        return data


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"txt": b"1\n"}, 1.0),
        ({"txt": b" 0.25 "}, 0.25),
        ({"txt": b"-3e-1"}, -0.3),
        ({"json": b"1"}, 1.0),
        ({"json": b'{"reward": 1, "style": 0.5}'}, {"reward": 1.0, "style": 0.5}),
        ({"json": b"0", "txt": b"1"}, 0.0),
    ],
    ids=str,
)
async def test_the_first_file_that_is_there_decides(files, expected):
    assert await reward.read(Written(**files), (JSON, TEXT)) == expected


async def test_no_file_at_all_is_an_error_of_its_own():
    with pytest.raises(
        reward.RewardMissing, match=r"wrote no reward file: .*reward\.json or .*reward\.txt\."
    ):
        await reward.read(Written(), (JSON, TEXT))


@pytest.mark.parametrize("files", [{"txt": b""}, {"txt": b" \n"}, {"json": b"", "txt": b"1"}], ids=str)
async def test_an_empty_file_is_an_error_of_its_own(files):
    with pytest.raises(reward.RewardEmpty, match=r"reward\.\w+ is empty\."):
        await reward.read(Written(**files), (JSON, TEXT))


@pytest.mark.parametrize(
    "files",
    [
        {"txt": b"passed"},
        {"txt": b"nan"},
        {"txt": b"inf"},
        {"txt": b"1 1"},
        {"txt": b"\xff"},
        {"json": b"{"},
        {"json": b"true"},
        {"json": b'"1"'},
        {"json": b"[1]"},
        {"json": b"null"},
        {"json": b"NaN"},
        {"json": b"1e999"},
        {"json": b"{}"},
        {"json": b'{"a": "1"}'},
        {"json": b'{"a": true}'},
        {"json": json.dumps({f"n{number}": 1 for number in range(101)}).encode()},
        {"json": json.dumps({"n" * 201: 1}).encode()},
        {"json": b"[" * 60_000},
        {"txt": b"1" * 70_000},
        {"txt": IsADirectoryError(errno.EISDIR, "Is a directory")},
        {"txt": OSError(errno.ELOOP, "a symbolic link is not followed")},
    ],
    ids=lambda files: str(files)[:40],
)
async def test_what_is_no_number_is_an_error_of_its_own(files):
    with pytest.raises(reward.RewardUnparsable, match=r"^The reward file .*\.$"):
        await reward.read(Written(**files), (JSON, TEXT))


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (1.0, True),
        (0.99, False),
        (0.0, False),
        (2.0, True),
        ({"reward": 1.0, "style": 0.0}, True),
        ({"reward": 0.0, "style": 1.0}, False),
        ({"tests": 1.0, "style": 1.0}, True),
        ({"tests": 1.0, "style": 0.5}, False),
    ],
    ids=str,
)
def test_a_whole_reward_passes(value, passes):
    assert reward.passes(value) is passes
