"""A backend's name to what opens its sandboxes, made from its own table of the settings."""

from __future__ import annotations

from typing import cast

from pydantic import ValidationError

from zubble_queue import registry
from zubble_queue.contracts.sandbox import SandboxProvider
from zubble_queue.contracts.sandbox_options import SandboxBackend
from zubble_queue.errors import BadInput
from zubble_queue.settings import Settings


def provider(settings: Settings, name: str) -> SandboxProvider:
    """The provider of one backend, with the options of `[sandboxes.NAME]`; nothing is opened yet.

    An option `images_folder` that the table leaves out is that of the installation.

    Raises:
        UnknownName: No such backend is installed.
        MissingExtra: What it needs is not installed.
        BadInput: Its table holds what it does not know, one sentence each.
    """
    backend = cast("SandboxBackend", registry.load("sandbox", name))
    table = dict(settings.sandboxes.get(name, {}))
    if "images_folder" in backend.Options.model_fields:
        table.setdefault("images_folder", settings.images_folder)
    try:
        options = backend.Options.model_validate(table)
    except ValidationError as invalid:
        raise BadInput(
            settings.sentence(("sandboxes", name, *error["loc"]), error["msg"]) for error in invalid.errors()
        ) from None
    return backend.from_options(options)
