"""A work tree without a sandbox around it."""

from __future__ import annotations

import os

import pytest

from zubble_sandbox.supervisor import wire
from zubble_sandbox.supervisor.tree import Roots


class Given(wire.Body):
    """A body whose bytes are all there."""

    def __init__(self, data: bytes) -> None:
        super().__init__(None, 0)
        self._buffer += data
        self._ended = True


@pytest.fixture
def given():
    return Given


class Tree:
    def __init__(self, top) -> None:
        self.path = top / "work"
        self.path.mkdir()
        self.roots = Roots({b"work": os.fsencode(self.path)})


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "outside").write_text("outside")
    return Tree(tmp_path)


@pytest.fixture
def new_tree(tmp_path_factory):
    return lambda: Tree(tmp_path_factory.mktemp("tree"))
