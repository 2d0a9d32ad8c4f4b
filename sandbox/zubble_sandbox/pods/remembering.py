"""Pure: what a pod carries for the worker that adopts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import notes
from zubble_sandbox.pods import names


def environment_note(environment: Mapping[str, str]) -> dict[str, Any]:
    """Of the image, as a merge patch."""
    return {"metadata": {"annotations": {names.ENVIRONMENT_NOTE: json.dumps(dict(environment))}}}


def recalled(pod: Mapping[str, Any]) -> tuple[SandboxSpec, dict[str, str]]:
    """The spec and the image's environment. Raises SandboxUnavailable for a pod of another version."""
    try:
        environment = dict(json.loads(names.note(pod, names.ENVIRONMENT_NOTE) or "{}"))
    except (TypeError, ValueError) as error:
        raise SandboxUnavailable(f"The pod {pod['metadata']['name']} cannot be adopted: {error}.") from error
    return notes.recalled(names.note(pod, names.SPEC_NOTE)), environment
