"""Pure: what a pod carries for the worker that adopts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.pods import names
from zubble_sandbox.pods.api import Object

_LEFT_OUT: Final = "readonly_files"
"""They are in the pod already."""


def spec_note(spec: SandboxSpec) -> str:
    return json.dumps({name: value for name, value in asdict(spec).items() if name != _LEFT_OUT})


def environment_note(environment: Mapping[str, str]) -> dict[str, Any]:
    """A merge patch."""
    return {"metadata": {"annotations": {names.ENVIRONMENT_NOTE: json.dumps(dict(environment))}}}


def recalled(pod: Object) -> tuple[SandboxSpec, dict[str, str]]:
    """The spec and the image's environment. Raises SandboxUnavailable for a pod of another version."""
    notes = pod["metadata"].get("annotations") or {}
    try:
        told: dict[str, Any] = json.loads(notes[names.SPEC_NOTE])
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
        }
        return SandboxSpec(**values), dict(json.loads(notes.get(names.ENVIRONMENT_NOTE, "{}")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SandboxUnavailable(f"The pod {pod['metadata']['name']} cannot be adopted: {error}.") from error
