"""Settings, read once at start: flags over environment over zubble.toml over defaults.

The file is the one that $ZUBBLE_CONFIG names, else ./zubble.toml, else zubble-queue/zubble.toml in the
user's configuration folder. An environment variable is ZUBBLE_ and the field, with `__` before a nested one:
ZUBBLE_WORKER__SLOTS=8. Lists are JSON or comma-separated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from zubble_queue.config_layers import (
    ENV_PREFIX,
    Environment,
    Layers,
    config_file,
    flat,
    given,
    read_toml,
    sentence,
    xdg,
)
from zubble_queue.contracts.envelope import POOL_PATTERN
from zubble_queue.contracts.frozen import FrozenMap
from zubble_queue.contracts.model_config import ModelConfig, is_key_name
from zubble_queue.contracts.sandbox import WEB_PORTS, NetworkMode
from zubble_queue.contracts.sandbox_options import Words, split
from zubble_queue.errors import BadInput

REDIS_SCHEMES: Final = ("redis", "rediss", "unix", "sentinel", "redis+sentinel", "rediss+sentinel")

_IMAGES_OF_ROOT: Final = Path("/var/lib/zubble-queue/images")
_FROZEN: Final = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


Names = Annotated[Words, Field(min_length=1)]

PoolNames = Annotated[
    tuple[Annotated[str, Field(pattern=POOL_PATTERN)], ...], BeforeValidator(split), Field(min_length=1)
]


Networks = Annotated[tuple[NetworkMode, ...], BeforeValidator(split), Field(min_length=1)]
Ports = Annotated[
    tuple[Annotated[int, Field(ge=1, le=65_535)], ...], BeforeValidator(split), Field(min_length=1)
]


class LeaseSettings(BaseModel):
    """One setting; the others are derived from it (design: section 3.4)."""

    model_config = _FROZEN

    lease_seconds: float = Field(default=60.0, ge=2.0, le=3_600.0)

    @property
    def renew_seconds(self) -> float:
        return self.lease_seconds / 4

    @property
    def self_stop_seconds(self) -> float:
        """Without a renewal for this long, the attempt stops itself: before anyone may reap it."""
        return self.lease_seconds * 2 / 3


class WorkerSettings(BaseModel):
    """What this machine's workers do, and what they allow a task to ask for."""

    model_config = _FROZEN

    slots: int = Field(default=4, ge=1, le=1_000)
    """Attempts at the same time in one worker process."""
    pools: PoolNames = ("default",)
    """Whose tasks its workers are given."""
    sandboxes: Names = ("bubblewrap",)
    """Backends a task may ask for; `local` does not isolate."""
    warm_sandboxes: int = Field(default=0, ge=0, le=1_000)
    """Of each backend: how many are open before a task asks for one, of the kinds asked for lately."""
    networks: Networks = ("none",)
    """What a task may ask for: `allowlist`, `open`; `none` is always granted."""
    network_ports: Ports = WEB_PORTS
    """What may be reached on the hosts of an allow-list."""
    feeder: bool = True
    """Whether a worker of this machine may lead the feeding."""
    traces: bool = False
    """Whether attempts are sent as OpenTelemetry spans, to where OTEL_EXPORTER_OTLP_ENDPOINT says."""
    drain_seconds: float = Field(default=20.0, ge=0.0, le=3_600.0)
    """After the first SIGTERM or SIGINT: how long running attempts may go on before they are handed over."""


class Settings(BaseSettings):
    """Everything a process needs to know before it starts; made by `Settings.load`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
    )

    home: Path
    """Where the embedded server and the default artifact store keep their data; by default zubble-queue in
    the user's data folder."""
    redis_url: SecretStr | None = None
    """A Redis or Valkey server; None means the embedded one."""
    namespace: str = Field(default="zubble", pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    """Prefix of every key, so that installations may share a server."""
    artifacts_url: str = Field(min_length=1)
    """An fsspec URL or a folder; by default `artifacts` below home."""
    images_folder: Path
    """Where `zubble sandbox pull` keeps root file systems. By default `images` below home; without a home of
    its own, root has them where the users of its sandboxes can get to."""
    record_ttl_seconds: int = Field(default=30 * 86_400, ge=3_600)
    """How long Redis keeps the records of a batch."""
    max_attempts: int = Field(default=3, ge=1, le=10)
    """Attempts lost to dead workers, or to faults of our own, before a task is sealed `stuck`."""
    lease: LeaseSettings = LeaseSettings()
    worker: WorkerSettings = WorkerSettings()
    models: FrozenMap[str, ModelConfig] = Field(default_factory=dict, validate_default=True)
    sandboxes: FrozenMap[str, FrozenMap[str, Any]] = Field(default_factory=dict, validate_default=True)
    """Backend to its own options, which it validates itself when it is needed (`zubble_queue.sandboxes`)."""

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the base class fixes the signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` hands over, so that nothing is read behind its back."""
        return (init_settings,)

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None) -> Self:
        """Read all sources.

        Args:
            flags: Values from the command line, nested like the fields; None means not given.

        Raises:
            BadInput: One sentence per problem, naming the file, variable or flag and the field.
        """
        file = config_file()
        layers = Layers()
        layers.add("flag", given(flags or {}), Path.cwd())
        layers.add("environment", Environment(cls)(), Path.cwd())
        if file is not None:
            layers.add(str(file), read_toml(cls, file), file.parent)
        settings = cls._validated(layers)
        settings._origins, settings._file = layers.origins, file  # noqa: SLF001  # its own, on the way out
        return settings

    @classmethod
    def _validated(cls, layers: Layers) -> Self:
        models, problems = _models(layers)
        problems += _keys_in_sandboxes(layers)
        try:
            settings = cls(**{**layers.values, "models": models})
        except ValidationError as invalid:
            problems += [layers.sentence(error["loc"], error["msg"]) for error in invalid.errors()]
        if problems:
            raise BadInput(dict.fromkeys(problems))
        return settings

    @model_validator(mode="before")
    @classmethod
    def _with_places(cls, values: dict[str, Any]) -> dict[str, Any]:
        home = values.get("home") or xdg("XDG_DATA_HOME", ".local/share")
        is_root = "home" not in values and _effective_uid() == 0
        images = _IMAGES_OF_ROOT if is_root else Path(home) / "images"
        places = {"artifacts_url": str(Path(home) / "artifacts"), "images_folder": images}
        return {**places, **values, "home": Path(home).absolute()}

    @field_validator("redis_url")
    @classmethod
    def _is_redis_url(cls, url: SecretStr | None) -> SecretStr | None:
        scheme = None if url is None else urlsplit(url.get_secret_value()).scheme
        if scheme is not None and "cluster" in scheme:
            raise ValueError("must name a standalone server, not a Redis Cluster")
        if scheme is not None and scheme not in REDIS_SCHEMES:
            raise ValueError("must be a URL such as redis://127.0.0.1:6379/0 or unix:///run/redis.sock")
        return url

    @property
    def origins(self) -> Mapping[str, str]:
        """Dotted field to where its value came from; a field that is not in it has its default."""
        return self._origins

    @property
    def file(self) -> Path | None:
        """The zubble.toml that was read."""
        return self._file

    @property
    def embedded_folder(self) -> Path:
        return self.home / "embedded"

    def shown(self) -> dict[str, Any]:
        """Dotted field to value, as `config show` prints it; passwords are ***."""
        values = self.model_dump(mode="json")
        if self.redis_url is not None:
            values["redis_url"] = self.redis_url.get_secret_value()
        return {
            name: without_password(value) if isinstance(value, str) and "://" in value else value
            for name, value in flat(values)
        }

    def sentence(self, loc: Sequence[int | str], message: str) -> str:
        """What is wrong with a field, with where it was set."""
        return sentence(self._origins, loc, message)


def without_password(url: str) -> str:
    """The URL with its password as ***."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def _effective_uid() -> int | None:
    """None where users have no numbers."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def _models(layers: Layers) -> tuple[dict[str, ModelConfig], list[str]]:
    """Each model on its own, so that a broken one is named and the others are still checked."""
    tables = layers.values.get("models", {})
    if not isinstance(tables, Mapping):
        return {}, [layers.sentence(("models",), "must be a table of tables: [models.NAME]")]
    models: dict[str, ModelConfig] = {}
    problems: list[str] = []
    for name, table in tables.items():
        try:
            models[name] = ModelConfig.model_validate(table).named(name)
        except BadInput as key_found:
            problems += [layers.sentence(("models", name), problem) for problem in key_found.problems]
        except ValidationError as invalid:
            problems += [
                _model_sentence(name, error["loc"], error["msg"], layers) for error in invalid.errors()
            ]
    return models, problems


def _keys_in_sandboxes(layers: Layers) -> Iterator[str]:
    """A key could be shown, and reach a process that has no need of it."""
    for name, _ in flat({"sandboxes": layers.values.get("sandboxes", {})}):
        loc = name.split(".")
        if len(loc) > 2 and is_key_name(loc[-1]):
            yield layers.sentence(loc, "a key must not stand in the configuration; name a file that holds it")


def _model_sentence(name: str, loc: tuple[int | str, ...], message: str, layers: Layers) -> str:
    if loc[:1] == ("price",):
        message = "must be 'free', 'genai-prices' or {input = USD, output = USD} per million tokens"
        loc = loc[:1]
    return layers.sentence(("models", name, *loc), message)
