"""Layers of configuration: flags, environment and file, merged with the origin of every value kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, TomlConfigSettingsSource

from zubble_queue.errors import BadInput

ENV_PREFIX: Final = "ZUBBLE_"
CONFIG_VARIABLE: Final = "ZUBBLE_CONFIG"
CONFIG_NAME: Final = "zubble.toml"
FOLDER_NAME: Final = "zubble-queue"

_PATHS: Final = ("home", "artifacts_url", "images_folder")
_MODEL_PATHS: Final = ("script", "api_key_file")


@dataclass(slots=True)
class Layers:
    """Values merged so far, the highest layer first, and where each came from."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Dotted field to `flag worker.slots`, `ZUBBLE_WORKER__SLOTS` or the file's path."""

    def add(self, origin: str, layer: Mapping[str, Any], base: Path) -> None:
        """Take what the layers before left open; relative paths are below `base`."""
        anchored = _anchored(layer, base)
        _fill(self.values, anchored)
        for name, _ in flat(anchored):
            self.origins.setdefault(name, _origin(origin, name))

    def sentence(self, loc: Sequence[int | str], message: str) -> str:
        """What pydantic found, as one sentence with the place it was said in."""
        return sentence(self.origins, loc, message)


class Environment(EnvSettingsSource):
    """ZUBBLE_ variables. An empty one is not given; what is not JSON is left for the field to judge."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, env_ignore_empty=True)

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def config_file() -> Path | None:
    """The zubble.toml that applies here: $ZUBBLE_CONFIG, the current folder, the user's folder.

    Raises:
        BadInput: $ZUBBLE_CONFIG names a file that does not exist.
    """
    if named := os.environ.get(CONFIG_VARIABLE):
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise BadInput([f"{CONFIG_VARIABLE} names {path}, which is not a file."])
        return path
    candidates = (Path.cwd() / CONFIG_NAME, xdg("XDG_CONFIG_HOME", ".config") / CONFIG_NAME)
    return next((path for path in candidates if path.is_file()), None)


def read_toml(settings_cls: type[BaseSettings], file: Path) -> dict[str, Any]:
    """The file's tables.

    Raises:
        BadInput: It cannot be read, or is not TOML; the sentence names file, line and column.
    """
    try:
        return TomlConfigSettingsSource(settings_cls, file)()
    except OSError as unreadable:
        raise BadInput([f"{file} cannot be read: {unreadable.strerror}."]) from unreadable
    except ValueError as broken:  # not UTF-8, or tomllib's own error, which names line and column
        raise BadInput([f"{file} is not valid TOML: {broken}."]) from broken


def sentence(origins: Mapping[str, str], loc: Sequence[int | str], message: str) -> str:
    """What pydantic says of a value, with where it was set, as in `zubble.toml: namespace: …`.

    An item of a list was set where the list was.
    """
    name = ".".join(str(part) for part in loc)
    whole = ".".join(part for part in loc if isinstance(part, str))
    text = message.removeprefix("Value error, ").rstrip(".")
    if text == "Extra inputs are not permitted":
        text = "there is no such setting"
    below = (origin for known, origin in origins.items() if known.startswith(f"{name}."))
    around = (origin for known, origin in origins.items() if whole.startswith(f"{known}."))
    where = origins.get(whole) or next(below, None) or next(around, "settings")
    return f"{where}: {name}: {text[:1].lower()}{text[1:]}."


def xdg(variable: str, otherwise: str) -> Path:
    """Our folder below one of the user's base folders."""
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / otherwise) / FOLDER_NAME


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags without those that are None: not given."""
    kept: dict[str, Any] = {}
    for name, value in flags.items():
        if isinstance(value, Mapping):
            if nested := given(value):
                kept[name] = nested
        elif value is not None:
            kept[name] = value
    return kept


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of a nested mapping."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _fill(values: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping) and isinstance(values.setdefault(name, {}), dict):
            _fill(values[name], value)
        else:
            values.setdefault(name, value)


def _anchored(layer: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The layer with its paths made absolute, so that a worker in another folder finds the same files."""
    anchored = {name: _below(value, base) if name in _PATHS else value for name, value in layer.items()}
    models = layer.get("models")
    if isinstance(models, Mapping):
        anchored["models"] = _tables_anchored(models, base, _MODEL_PATHS.__contains__)
    sandboxes = layer.get("sandboxes")
    if isinstance(sandboxes, Mapping):
        anchored["sandboxes"] = _tables_anchored(sandboxes, base, _is_path_name)
    return anchored


def _tables_anchored(tables: Mapping[str, Any], base: Path, is_path: Callable[[str], bool]) -> dict[str, Any]:
    return {
        name: {key: _below(value, base) if is_path(key) else value for key, value in table.items()}
        if isinstance(table, Mapping)
        else table
        for name, table in tables.items()
    }


def _is_path_name(name: str) -> bool:
    return name.rpartition("_")[2] in {"file", "folder"}


def _below(value: Any, base: Path) -> Any:
    if not isinstance(value, str | Path) or not str(value) or "://" in str(value):
        return value
    return str(base / Path(value).expanduser())


def _origin(layer: str, name: str) -> str:
    if layer == "environment":
        return ENV_PREFIX + name.upper().replace(".", "__")
    return f"flag {name}" if layer == "flag" else layer
