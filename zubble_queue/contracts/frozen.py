"""A mapping that cannot be changed: `frozen=True` alone leaves a model's dict open to item assignment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, SerializerFunctionWrapHandler, WrapSerializer

K = TypeVar("K")
V = TypeVar("V")


def _freeze(value: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(value))


def _thaw(value: Mapping[K, V], serialize: SerializerFunctionWrapHandler) -> Any:
    return serialize(dict(value))


FrozenMap = Annotated[Mapping[K, V], AfterValidator(_freeze), WrapSerializer(_thaw)]
