"""A table that describes a model: complete, without a key, and recognisable by a hash."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import BadInput

PLAIN = {"base_url": "http://127.0.0.1:8000/v1"}


def config(**table) -> ModelConfig:
    return ModelConfig.model_validate(PLAIN | table)


@pytest.mark.parametrize(
    "name", ["api_key", "API-KEY", "apikey", "key", "token", "authorization", "password"]
)
def test_a_key_in_the_table_is_refused_and_shown_nowhere(name):
    with pytest.raises(BadInput, match="api_key_env") as caught:
        config(**{name: "sk-very-secret"})
    assert caught.value.problems[0].startswith(name)
    assert "sk-very-secret" not in repr(caught.value) + str(caught.value)


def test_no_error_of_a_table_shows_its_values():
    with pytest.raises(ValidationError) as caught:
        config(bearer="sk-very-secret")
    assert "sk-very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://host/v1", "http or https"),
        ("127.0.0.1:8000", "http or https"),
        ("http://", "http or https"),
        ("http://user:pass@host/v1", "no user, password"),
        ("http://host/v1?key=x", "no user, password, query"),
    ],
)
def test_a_base_url_must_be_plain(url, problem):
    with pytest.raises(ValidationError, match=problem):
        config(base_url=url)


def test_a_slash_at_the_end_of_base_url_makes_no_difference():
    assert config(base_url="http://host/v1/").base_url == "http://host/v1"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"base_url": None}, "base_url is needed"),
        ({"backend": "scripted"}, "script is needed"),
        ({"api_key_env": "A", "api_key_file": "b"}, "exclude each other"),
        ({"price": "cheap"}, "price"),
        ({"price": {"input": -1, "output": 2}}, "greater than or equal to 0"),
        ({"price": {"input": 1}}, "output"),
        ({"context": 10}, "context"),
        ({"capabilities": {"stops": True}}, "Extra inputs"),
    ],
)
def test_an_incomplete_or_wrong_table_says_what_is_wrong(table, problem):
    with pytest.raises(ValidationError, match=problem):
        config(**table)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://localhost/v1", True),
        ("http://localhost.example.com/v1", False),
        ("http://10.0.0.1/v1", False),
    ],
)
def test_a_loopback_address_is_recognised(url, here):
    assert config(base_url=url).is_loopback is here


def test_the_hash_tells_models_apart_by_what_decides_their_answers_and_their_price():
    assert config(model="a").public_hash() != config(model="b").public_hash()
    assert config(price="free").public_hash() != config().public_hash()
    assert config(capabilities={"stop": False}).public_hash() != config().public_hash()


def test_the_hash_knows_nothing_of_keys_and_waits():
    assert config(api_key_env="A", retries=1, idle_timeout_seconds=5).public_hash() == config().public_hash()


def test_the_tables_own_name_is_sent_where_it_names_no_model():
    assert config().named("solver").model == "solver"
    assert config(model="qwen3").named("solver").model == "qwen3"


def test_levels_are_accepted_as_the_efforts_say():
    assert config().accepts("xhigh")
    limited = config(capabilities={"reasoning_efforts": {"low": "low"}})
    assert limited.accepts("low")
    assert limited.accepts("off")
    assert not limited.accepts("medium")


def test_a_table_cannot_be_changed():
    limited = config(capabilities={"reasoning_efforts": {"low": "low"}})
    with pytest.raises(TypeError):
        limited.capabilities.reasoning_efforts["low"] = "high"
    with pytest.raises(ValidationError):
        limited.retries = 9
