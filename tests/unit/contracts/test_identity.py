"""Who a task is follows from (batch, source_id, repeat) and from nothing else (C40)."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.contracts import identity
from zubble_queue.contracts.task import TASK_ID_PATTERN

source_ids = st.text(min_size=1, max_size=400)
repeats = st.integers(min_value=1, max_value=10_000)


@given(source_ids, repeats)
def test_every_source_id_gives_an_id_of_the_contracts_pattern(source_id: str, repeat: int):
    task_id = identity.task_id("batch", source_id, repeat)
    assert re.fullmatch(TASK_ID_PATTERN, task_id, re.ASCII)
    assert len(task_id) <= 120


@given(st.lists(source_ids, min_size=2, max_size=20, unique=True), st.randoms())
def test_the_order_in_which_tasks_are_read_does_not_matter(sources: list[str], random):
    before = {source: identity.task_id("batch", source, 1) for source in sources}
    random.shuffle(sources)
    assert {source: identity.task_id("batch", source, 1) for source in sources} == before
    assert len(set(before.values())) == len(sources)


@given(source_ids, repeats, repeats)
def test_another_repeat_is_another_task(source_id: str, one: int, other: int):
    same = identity.task_id("batch", source_id, one) == identity.task_id("batch", source_id, other)
    assert same is (one == other)


def test_another_batch_is_another_task():
    assert identity.task_id("a", "HumanEval/0", 1) != identity.task_id("b", "HumanEval/0", 1)


def test_the_parts_of_the_key_cannot_be_shifted_into_each_other():
    assert identity.task_id("a", "b1", 1) != identity.task_id("ab", "1", 1)
    assert identity.task_id("a", 'x",1', 1) != identity.task_id("a", "x", 1)


def test_the_id_of_a_known_task_stays_what_it_was_in_every_release():
    assert identity.task_id("humaneval-0a1b2c", "HumanEval/0", 1) == "19229-humaneval-0-48fa8bfd"


def test_an_id_without_a_letter_or_digit_is_called_task():
    assert re.fullmatch(r"[0-9]+-task-[0-9a-f]{8}", identity.task_id("a", "\u4f60\u597d/!", 1))


@given(st.text(max_size=80), st.lists(st.text(max_size=20), max_size=4))
def test_a_default_batch_name_is_a_batch_name(stem: str, settings: list[str]):
    name = identity.default_batch_name(stem, *settings)
    assert re.fullmatch(identity.BATCH_NAME_PATTERN, name)


def test_another_model_is_another_batch():
    one = identity.default_batch_name("HumanEval", "model-a", "zubble", "bubblewrap")
    other = identity.default_batch_name("HumanEval", "model-b", "zubble", "bubblewrap")
    assert one != other
    assert one.startswith("HumanEval-")


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert identity.canonical_json({"b": 1, "a": "\u00e4"}) == '{"a":"ä","b":1}'.encode()
