"""Only what the endpoint understands is sent."""

from __future__ import annotations

import json

import pytest

from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_worker.models.request import request_body

TALK = [
    Message("system", "be brief"),
    Message("user", "grüß dich"),
    Message("assistant", "hi"),
    Message("user", "go"),
]


def sent(capabilities=None, **options):
    config = ModelConfig.model_validate(
        {"base_url": "http://127.0.0.1:1/v1", "model": "m", "capabilities": capabilities or {}}
    )
    options = {"max_tokens": 100, "deadline_seconds": 1.0} | options
    return json.loads(request_body(config, TALK, CallOptions(**options)))


def test_the_conversation_is_sent_as_an_array_of_roles():
    assert sent()["messages"] == [{"role": m.role, "content": m.content} for m in TALK]


def test_the_plain_request_streams_with_usage_at_temperature_zero():
    body = sent()
    del body["messages"]
    assert body == {
        "model": "m",
        "stream": True,
        "max_tokens": 100,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
    }


@pytest.mark.parametrize(
    ("capabilities", "absent"),
    [
        ({"stream_usage": False}, "stream_options"),
        ({"temperature": False}, "temperature"),
        ({"seed": False}, "seed"),
        ({"stop": False}, "stop"),
        ({"response_schema": False}, "response_format"),
        ({"max_tokens_field": "max_completion_tokens"}, "max_tokens"),
        ({}, "reasoning_effort"),
        ({}, "chat_template_kwargs"),
    ],
)
def test_what_the_endpoint_does_not_understand_is_left_out(capabilities, absent):
    body = sent(capabilities, seed=7, stop=("x",), response_schema={"type": "object"}, level="low")
    assert absent not in body


def test_the_newer_name_of_max_tokens_is_used_where_it_is_asked_for():
    assert sent({"max_tokens_field": "max_completion_tokens"})["max_completion_tokens"] == 100


def test_at_most_max_stop_sequences_are_sent():
    assert sent({"max_stop": 2}, stop=("a", "b", "c"))["stop"] == ["a", "b"]


def test_a_schema_is_sent_as_a_response_format():
    schema = {"type": "object"}
    sent_format = sent({"response_schema": True}, response_schema=schema)["response_format"]
    assert sent_format["type"] == "json_schema"
    assert sent_format["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("level", "kwargs"),
    [
        ("off", {"enable_thinking": False}),
        ("low", {"enable_thinking": True, "reasoning_effort": "low"}),
        ("xhigh", {"enable_thinking": True, "reasoning_effort": "xhigh"}),
    ],
)
def test_local_servers_hear_the_thinking_level_in_the_template(level, kwargs):
    assert sent({"thinking": "chat_template_kwargs"}, level=level)["chat_template_kwargs"] == kwargs


def test_the_effort_is_sent_by_the_endpoints_own_name():
    efforts = {"reasoning_efforts": {"xhigh": "high"}}
    assert sent(efforts, level="xhigh")["reasoning_effort"] == "high"
    assert sent(efforts | {"thinking": "chat_template_kwargs"}, level="xhigh")["chat_template_kwargs"] == {
        "enable_thinking": True,
        "reasoning_effort": "high",
    }
    assert "reasoning_effort" not in sent(efforts, level="off")


def test_a_prompt_with_half_a_surrogate_pair_can_be_sent():
    config = ModelConfig(base_url="http://127.0.0.1:1/v1", model="m")
    body = request_body(config, [Message("user", "a\ud83db")], CallOptions(max_tokens=1, deadline_seconds=1))
    assert json.loads(body)["messages"][0]["content"] == "a?b"
