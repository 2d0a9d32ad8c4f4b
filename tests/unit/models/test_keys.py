"""The key comes from where the worker's configuration says, and its absence is named without it."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import NoKey
from zubble_worker.models.keys import read_key
from zubble_worker.models.openai import OpenAIModel


def config(**table) -> ModelConfig:
    return ModelConfig.model_validate({"base_url": "http://127.0.0.1:1/v1", "price": "free"} | table)


def test_a_key_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("SOLVER_KEY", "sk-1")
    assert read_key("solver", config(api_key_env="SOLVER_KEY")) == "sk-1"


def test_a_key_is_read_from_a_file_without_its_line_end(tmp_path):
    (tmp_path / "key").write_text("sk-1\n")
    model = OpenAIModel.from_config("solver", config(api_key_file=str(tmp_path / "key")))
    assert model._headers["authorization"] == "Bearer sk-1"


def test_no_place_means_no_key():
    assert read_key("solver", config()) is None


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(NoKey, match="model 'solver' is missing: the environment variable SOLVER_KEY"):
        read_key("solver", config(api_key_env="SOLVER_KEY"))


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_an_empty_key_file_is_named(tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(NoKey, match=r"is missing: the file .*key is empty"):
        read_key("solver", config(api_key_file=str(tmp_path / "key")))


def test_a_key_file_that_cannot_be_read_is_named_and_its_bytes_are_not(tmp_path):
    with pytest.raises(NoKey, match=r"cannot be read from the file .*none"):
        read_key("solver", config(api_key_file=str(tmp_path / "none")))
    (tmp_path / "key").write_bytes(b"sk-\xff")
    with pytest.raises(NoKey) as caught:
        read_key("solver", config(api_key_file=str(tmp_path / "key")))
    assert "xff" not in str(caught.value)
