"""Which models a submission may name, and whether their prices are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from zubble_queue.errors import BadInput, MissingExtra, OperatorError, UnknownName

if TYPE_CHECKING:
    from zubble_queue.contracts.envelope import TaskEnvelope
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.contracts.record import WorkerInfo


def endpoint_model(name: str, endpoint: str, price: str | None, api_key_env: str | None) -> ModelConfig:
    """The model that --endpoint, --price and --api-key-env describe; on this machine it is free by default.

    Raises:
        BadInput: One sentence per flag that cannot be used; an unknown price is one of them.
    """
    from pydantic import ValidationError

    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.formats.lines import sentences

    flags = {"base_url": "--endpoint", "api_key_env": "--api-key-env", "price": "--price"}
    table = {"base_url": endpoint, "api_key_env": api_key_env}
    try:
        found = ModelConfig.model_validate(table | {"price": "free" if price is None else _price(price)})
    except ValidationError as invalid:
        raise BadInput(sentences(invalid, renamed=flags)) from invalid
    if price is None and not found.is_loopback:
        raise BadInput(["--endpoint needs --price: free, or IN/OUT in US dollars per million tokens."])
    return found.named(name)


def _price(text: str) -> object:
    if text == "free":
        return text
    found = re.fullmatch(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)", text)
    if found is None:
        raise BadInput([f"--price must be free or IN/OUT, as in 3/15 or 0.25/1.5, not {text!r}."])
    return {"input": float(found[1]), "output": float(found[2])}


def check_known(
    envelopes: Iterable[TaskEnvelope], local: Mapping[str, ModelConfig], workers: Iterable[WorkerInfo]
) -> None:
    """Every model must be defined here or known to a living worker, and accept the thinking level.

    Raises:
        UnknownName: Names the one that is not, and all that are.
        BadInput: A level that a model does not accept.
    """
    known = {*local, *(name for worker in workers for name in worker.models)}
    for name, level in sorted({(envelope.model, envelope.level) for envelope in envelopes}):
        if name not in known:
            raise UnknownName("model", name, known)
        if name in local and not local[name].accepts(level):
            efforts = ", ".join(["off", *local[name].capabilities.reasoning_efforts])
            raise BadInput([f"Model {name!r} does not accept the level {level!r}; it takes {efforts}."])


def unpriced(names: Iterable[str], local: Mapping[str, ModelConfig]) -> dict[str, str]:
    """Locally defined models without a known price, with a sentence each.

    A model that only a worker knows was priced by that worker when it started.
    """
    from zubble_queue import registry

    found: dict[str, str] = {}
    for name in sorted(set(names) & set(local)):
        try:
            registry.load("service", "price")(local[name].named(name))
        except MissingExtra:
            continue  # nothing is priced or called on a machine that only submits
        except OperatorError as unknown:
            found[name] = str(unknown)
    return found
