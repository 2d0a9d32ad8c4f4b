"""Every test runs against Valkey and against Redis, in a namespace of its own that is audited after it."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"store_tests_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


servers = _load("servers")
world_module = _load("world")


@pytest.fixture(
    scope="session", params=[pytest.param(kind, marks=pytest.mark.redis) for kind in servers.KINDS]
)
def server(request: pytest.FixtureRequest, missing_part: Callable[[str], NoReturn]) -> Iterator[object]:
    """A server that all tests share."""
    try:
        with servers.started(request.param) as running:
            yield running
    except servers.NotInstalled as missing:
        missing_part(str(missing))


@pytest.fixture
async def world(server: object) -> AsyncIterator[object]:
    """A store in a fresh namespace, and the ways tests use it; every key left behind is checked."""
    small_world = await world_module.World.create(server.url, f"t{secrets.token_hex(4)}")
    yield small_world
    wrong = await small_world.keys_that_break_the_table()
    await small_world.close()
    assert not wrong
