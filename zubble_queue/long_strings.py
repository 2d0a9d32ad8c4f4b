"""Events without their long strings, which go to the artifact store and travel as references."""

from __future__ import annotations

import json
from typing import Any, Final

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts import identity
from zubble_queue.contracts.event import Event

_INLINE_CHARS: Final = 4_096
_INLINE_BYTES: Final = 32_768
_BLOB: Final = "$blob"
_DATA: Final = "$data"


async def small(data: dict[str, Any], artifacts: ArtifactStore) -> dict[str, Any]:
    """Data as Redis may hold it; where it is large without its long strings too, one reference.

    Raises InfraError when the artifact store cannot keep them.
    """
    found: dict[str, Any] = await _without(data, artifacts)
    text = identity.canonical_json(found)
    if len(text) <= _INLINE_BYTES:
        return found
    blob = await artifacts.aput(text)
    return {_DATA: blob.ref, "size": blob.size}


async def whole(event: Event, artifacts: ArtifactStore) -> Event:
    """The event with its long strings put back. Raises InfraError when the artifact store lost one."""
    data = event.data
    if _DATA in data:
        data = json.loads(await artifacts.aget(data[_DATA]))
    return event.model_copy(update={"data": await _with(data, artifacts)})


async def _without(value: Any, artifacts: ArtifactStore) -> Any:
    """Strings over 4,096 characters become references."""
    if isinstance(value, str) and len(value) > _INLINE_CHARS:
        blob = await artifacts.aput(value.encode("utf-8", "surrogatepass"))
        return {_BLOB: blob.ref, "size": blob.size}
    if isinstance(value, dict):
        return {key: await _without(item, artifacts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [await _without(item, artifacts) for item in value]
    return value


async def _with(value: Any, artifacts: ArtifactStore) -> Any:
    if isinstance(value, dict) and _BLOB in value:
        return (await artifacts.aget(value[_BLOB])).decode("utf-8", "surrogatepass")
    if isinstance(value, dict):
        return {key: await _with(item, artifacts) for key, item in value.items()}
    if isinstance(value, list):
        return [await _with(item, artifacts) for item in value]
    return value
