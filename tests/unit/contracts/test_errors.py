"""The tree drawn at the top of errors.py is the tree that is there."""

from __future__ import annotations

import inspect
import re

from zubble_queue import errors


def _drawn() -> dict[str, str]:
    """Class to parent, read from the indentation."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.fullmatch(r"( *)([A-Z][A-Za-z]+)(  .*)?", line):
            depth, name = len(found[1]), found[2]
            path = [entry for entry in path if entry[0] < depth]
            parents[name] = path[-1][1] if path else "Exception"
            path.append((depth, name))
    return parents


def test_the_drawn_tree_is_the_real_one():
    real = {
        name: kind.__bases__[0].__name__
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    }
    assert _drawn() == real


def test_a_tripped_kill_switch_is_a_runtime_error():
    error = errors.BudgetExceededError("iterations", "max_iterations=20 exceeded")
    assert isinstance(error, RuntimeError)
    assert (error.limit, error.reason, str(error)) == ("iterations", *["max_iterations=20 exceeded"] * 2)


def test_bad_input_keeps_one_sentence_per_problem():
    error = errors.BadInput(f"line {number}: no JSON." for number in (3, 7))
    assert error.problems == ("line 3: no JSON.", "line 7: no JSON.")
    assert str(error) == "line 3: no JSON.\nline 7: no JSON."


def test_an_unknown_name_comes_with_the_known_ones():
    assert str(errors.UnknownName("model", "gpt", ["b", "a"])) == "Unknown model 'gpt'; known: a, b."
    assert str(errors.UnknownName("model", "gpt", [])) == "Unknown model 'gpt'; known: none."


def test_a_missing_extra_says_what_to_install():
    assert "pip install 'zubble-queue[worker]'" in str(errors.MissingExtra("The worker", "worker"))
