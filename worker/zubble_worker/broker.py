"""The same Redis in Kombu's words: how Celery is told what `stores.address` has read."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from zubble_queue.stores.address import Address, read


def broker_settings(url: str) -> dict[str, Any]:
    """`broker_url`, `broker_use_ssl` and the transport options for a Redis URL. Raises CannotStart.

    Kombu takes no certificate check where a `rediss://` says nothing about it, so TLS is always spelled out.
    """
    address = read(url)
    options: dict[str, Any] = {}
    if address.sentinels:
        options = {"master_name": address.master}
        if address.sentinel_options:
            options["sentinel_kwargs"] = address.sentinel_options
    return {
        "broker_url": _url(address),
        "broker_use_ssl": dict(address.tls) if address.tls is not None else False,
        "broker_transport_options": options,
    }


def _url(address: Address) -> str:
    login = _login(address)
    if address.sentinels:
        hosts = (_host(host, port) for host, port in address.sentinels)
        return ";".join(f"sentinel://{login}{host}/{address.db}" for host in hosts)
    parts = urlsplit(address.url)
    if parts.scheme == "unix":
        return f"redis+socket://{login}{parts.path}?virtual_host={address.db}"
    hosts_part = parts.netloc.rpartition("@")[2]
    return f"redis://{login}{hosts_part}/{address.db}"


def _login(address: Address) -> str:
    if address.username is None and address.password is None:
        return ""
    return f"{quote(address.username or '', safe='')}:{quote(address.password or '', safe='')}@"


def _host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
