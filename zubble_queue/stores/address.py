"""Where Redis is: one URL, read the same way by our store and by Celery's broker.

    redis://[user:password@]host[:port][/db]                rediss://…?ssl_ca_certs=FILE   (TLS)
    unix://[user:password@]/path[?db=N]
    sentinel://[user:password@]host[:port][,host…]/MASTER[/db]   rediss+sentinel://…   (TLS to all of them)

User and password are the server's; the Sentinels' own are ?sentinel_username= and ?sentinel_password=.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from zubble_queue.errors import CannotStart
from zubble_queue.redaction import keep_out_of_logs
from zubble_queue.settings import REDIS_SCHEMES

SENTINEL_PORT: Final = 26_379
_TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_OPTIONS: Final = frozenset({*_TLS_FILES, "ssl_cert_reqs", "ssl_check_hostname"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})
_CERT_REQS: Final = {"required": ssl.CERT_REQUIRED, "none": ssl.CERT_NONE}
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Address:
    """A URL that has been understood."""

    url: str = field(repr=False)
    sentinels: tuple[tuple[str, int], ...] = ()
    """Host and port of each; empty where the server is named itself."""
    master: str = ""
    """What the Sentinels call it."""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_login: Mapping[str, str] = field(default_factory=dict, repr=False)
    """username and password for the Sentinels themselves."""
    tls: Mapping[str, Any] | None = None
    """Options of redis-py for TLS; None without TLS. Certificates are checked unless the URL says not to."""

    @property
    def sentinel_options(self) -> dict[str, Any]:
        """What a client of a Sentinel needs."""
        return {**self.sentinel_login, **({"ssl": True, **self.tls} if self.tls is not None else {})}


def place(url: str) -> str:
    """The URL without its user, password and query: fit for a sentence."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read(url: str) -> Address:
    """Understand a URL.

    Raises:
        CannotStart: One sentence, without user and password.
    """
    try:
        address = _read(url, urlsplit(url))
    except ValueError as unusable:
        raise CannotStart(f"{place(url)!r} is no Redis URL: {unusable}.") from unusable
    for secret in (address.password, urlsplit(url).password, address.sentinel_login.get("password")):
        keep_out_of_logs(secret)
    return address


def _read(url: str, parts: SplitResult) -> Address:
    if "cluster" in parts.scheme:
        raise CannotStart(f"{place(url)} names a Redis Cluster; give a standalone server.")
    if parts.scheme not in REDIS_SCHEMES:
        raise ValueError(f"it begins with none of {', '.join(f'{scheme}://' for scheme in REDIS_SCHEMES)}")
    return _sentinel(url, parts) if "sentinel" in parts.scheme else _standalone(url, parts)


def _standalone(url: str, parts: SplitResult) -> Address:
    secure = parts.scheme == "rediss"
    options = _options(parts, _TLS_OPTIONS if secure else frozenset(), frozenset({"db"}))
    path = "" if parts.scheme == "unix" else parts.path.strip("/")
    if parts.scheme != "unix":
        _ = parts.port  # raises where it is none
    return Address(
        url,
        db=_db(options.get("db") or path),
        username=_text(parts.username),
        password=_text(parts.password),
        tls=_tls(options) if secure else None,
    )


def _sentinel(url: str, parts: SplitResult) -> Address:
    secure = parts.scheme.startswith("rediss")
    options = _options(parts, _TLS_OPTIONS if secure else frozenset(), _SENTINEL_OPTIONS)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    master, _, db = parts.path.strip("/").partition("/")
    if not master:
        raise ValueError(
            "after the Sentinels it must name their master, as in sentinel://host:26379/mymaster"
        )
    return Address(
        url,
        sentinels=tuple(_host_and_port(host) for host in hosts.split(",")),
        master=unquote(master),
        db=_db(db),
        username=_text(user),
        password=_text(password),
        sentinel_login={
            name.removeprefix("sentinel_"): options[name] for name in _SENTINEL_OPTIONS & options.keys()
        },
        tls=_tls(options) if secure else None,
    )


def _options(parts: SplitResult, *allowed: frozenset[str]) -> dict[str, str]:
    options = dict(parse_qsl(parts.query))
    for name in options.keys() - frozenset().union(*allowed):
        raise ValueError(f"there is no option {name!r} for {parts.scheme}://")
    return options


def _tls(options: Mapping[str, str]) -> dict[str, Any]:
    for name in _TLS_FILES:
        if name in options and not os.access(options[name], os.R_OK):
            raise ValueError(f"{name} {options[name]!r} cannot be read")
    files = {name: options[name] for name in _TLS_FILES if name in options}
    required = _one_of("ssl_cert_reqs", options.get("ssl_cert_reqs", "required"), _CERT_REQS)
    named = _one_of("ssl_check_hostname", options.get("ssl_check_hostname", "true"), _BOOLEANS)
    return {
        **files,
        "ssl_cert_reqs": required,
        "ssl_check_hostname": named and required is ssl.CERT_REQUIRED,
    }


def _one_of(name: str, value: str, meanings: Mapping[str, Any]) -> Any:
    if value.lower() not in meanings:
        raise ValueError(f"{name} must be one of {', '.join(meanings)}, not {value!r}")
    return meanings[value.lower()]


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a Sentinel has no host")
    return parts.hostname, parts.port or SENTINEL_PORT


def _db(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise ValueError(f"the database must be a number, not {text[:40]!r}")
    return int(text)


def _text(quoted: str | None) -> str | None:
    return unquote(quoted) if quoted else None
