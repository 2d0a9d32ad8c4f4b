"""Each provider is asked in its own words: how much to think, and to go on from the beginning of a reply."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.providers import PROVIDERS, Provider
from zubble_worker.models.request import request_body

TALK = [Message("user", "go")]


def config(**table):
    return ModelConfig.model_validate({"base_url": "http://127.0.0.1:1/v1", "model": "m"} | table)


def sent(table, **options):
    options = {"max_tokens": 100, "deadline_seconds": 1.0} | options
    return json.loads(request_body(config(**table), TALK, CallOptions(**options)))


def test_every_provider_that_can_be_named_is_known():
    assert set(PROVIDERS) == set(get_args(Provider))


@pytest.mark.parametrize("provider", get_args(Provider))
def test_what_is_known_of_a_provider_is_a_table_of_capabilities(provider):
    assert config(provider=provider).accepts("xhigh")


@pytest.mark.parametrize(
    ("provider", "off", "medium", "xhigh"),
    [
        ("openai", {}, {"reasoning_effort": "medium"}, {"reasoning_effort": "high"}),
        (
            "ollama",
            {"reasoning_effort": "none"},
            {"reasoning_effort": "medium"},
            {"reasoning_effort": "high"},
        ),
        (
            "openrouter",
            {"reasoning": {"enabled": False}},
            {"reasoning": {"effort": "medium"}},
            {"reasoning": {"effort": "high"}},
        ),
        (
            "deepseek",
            {"thinking": {"type": "disabled"}},
            {"thinking": {"type": "enabled"}},
            {"thinking": {"type": "enabled"}},
        ),
        ("qwen", {"enable_thinking": False}, {"enable_thinking": True}, {"enable_thinking": True}),
        (
            "vllm",
            {"chat_template_kwargs": {"enable_thinking": False}},
            {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "medium"}},
            {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "xhigh"}},
        ),
    ],
)
def test_each_provider_hears_the_thinking_level_in_its_own_field(provider, off, medium, xhigh):
    fields = {"reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"}
    heard = [
        {name: value for name, value in sent({"provider": provider}, level=level).items() if name in fields}
        for level in ("off", "medium", "xhigh")
    ]
    assert heard == [off, medium, xhigh]


def test_the_table_goes_before_what_is_known_of_its_provider():
    table = {"provider": "vllm", "capabilities": {"prefix": "none", "max_stop": 2}}
    can = config(**table).capabilities
    assert (can.prefix, can.max_stop, can.response_schema) == ("none", 2, True)


def test_a_provider_nobody_knows_is_refused():
    with pytest.raises(ValidationError, match="provider"):
        config(provider="acme")


@pytest.mark.parametrize(
    ("prefix", "message", "fields"),
    [
        ("last_message", {}, {}),
        ("prefix_field", {"prefix": True}, {}),
        ("continue_final_message", {}, {"continue_final_message": True, "add_generation_prompt": False}),
    ],
)
def test_the_beginning_of_a_reply_is_the_last_message_and_no_schema_is_enforced_on_the_rest(
    prefix, message, fields
):
    can = {"prefix": prefix, "response_schema": True}
    body = sent({"capabilities": can}, prefix="It was", response_schema={"type": "object"})
    assert body["messages"][1:] == [{"role": "assistant", "content": "It was", **message}]
    assert "response_format" not in body
    assert {name: body[name] for name in fields} == fields


def test_a_reply_goes_on_only_where_the_endpoint_can_the_mode_allows_it_and_nothing_was_thought():
    can = {"capabilities": {"prefix": "last_message"}}
    assert config(**can).continues("off")
    assert not config(**can).continues("low")
    assert not config(**can, nudge_mode="next_turn").continues("off")
    assert not config().continues("off")


def test_restarting_with_a_prefix_needs_an_endpoint_that_can_go_on():
    with pytest.raises(ValidationError, match=r"restart_prefix needs capabilities\.prefix"):
        config(nudge_mode="restart_prefix")
