"""The API server's side of things: the few requests the pod backend makes, in one namespace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import kube_exec
from zubble_sandbox.pods.access import Access

REQUEST_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
_TRIES: Final = 4
_PAUSE_SECONDS: Final = 0.25
"""Before the second try; doubled for each one after it."""
_MAX_PAUSE_SECONDS: Final = 10.0
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""A sweep over thousands of pods needs their labels, not their specs."""

Object = dict[str, Any]


class ApiError(SandboxUnavailable):
    """The API server refused, or does not answer.

    Args:
        status: Of HTTP; 0 for no answer.
        message: One sentence.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class Api:
    """One session with the API server; requests that failed in passing are sent again.

    All are safe to send again: names are chosen by us and random, and what is changed carries the version
    that was read. Every method raises ApiError.
    """

    def __init__(self, access: Access, namespace: str) -> None:
        self._access, self.namespace = access, namespace
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, connect=_CONNECT_SECONDS),
            connector=aiohttp.TCPConnector(limit=0),  # an exec stream holds a connection as long as it lives
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def create(self, collection: str, manifest: Mapping[str, Any]) -> Object:
        try:
            return await self._request("POST", collection, body=manifest)
        except ApiError as error:
            if error.status != 409:
                raise
            # an earlier try got through: nobody else knows the name
            return await self.get(collection, manifest["metadata"]["name"])

    async def get(self, collection: str, name: str) -> Object:
        return await self._request("GET", collection, name)

    async def find(self, collection: str, name: str) -> Object | None:
        """None when there is none."""
        try:
            return await self.get(collection, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def replace(self, collection: str, manifest: Mapping[str, Any]) -> Object:
        return await self._request("PUT", collection, manifest["metadata"]["name"], body=manifest)

    async def patch(self, collection: str, name: str, changes: Mapping[str, Any]) -> Object:
        """Merge changes into an object (RFC 7386)."""
        return await self._request("PATCH", collection, name, body=changes)

    async def delete(self, collection: str, name: str, uid: str | None = None) -> bool:
        """False when it is gone already, or another has its name."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self._request("DELETE", collection, name, body=body)
        except ApiError as error:
            if error.status in {404, 409}:
                return False
            raise
        return True

    async def listed(self, collection: str, labels: Mapping[str, str]) -> list[Object]:
        """Of the objects with these labels, `metadata`, and for Leases the whole."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        accept = None if collection == "leases" else _METADATA_ONLY
        listing = await self._request("GET", collection, query={"labelSelector": selector}, accept=accept)
        return list(listing.get("items") or ())

    async def ask(self, path: str, *, body: Mapping[str, Any] | None = None) -> tuple[int, Object]:
        """Status and answer of any path, as in `version`; posts where there is a body. Never raises.

        The status is 0 where the server does not answer; then, and where the answer is no object, its words
        are under `message`.
        """
        method, url = "GET" if body is None else "POST", f"{self._access.host}/{path}"
        status, answer, _ = await self._once(method, url, None, body, None)
        return status, answer

    async def exec_line(self, pod: str, container: str, command: Sequence[str]) -> kube_exec.ExecLine:
        """Start a command in a container and hold on to its streams."""
        query = [("command", part) for part in command]
        query += [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
        url = self._url("pods", pod) + "/exec?" + "&".join(f"{name}={quote(text)}" for name, text in query)
        try:
            options = await asyncio.to_thread(self._access.options)
            return await kube_exec.connect(
                self._session, "ws" + url.removeprefix("http"), seconds=REQUEST_SECONDS, **options
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(
                error.status, _refusal(error.status, "exec into", f"pods/{pod}", self.namespace)
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(0, f"No exec stream to the pod {pod}: {_told(error)}.") from error

    async def _request(
        self,
        method: str,
        collection: str,
        name: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        accept: str | None = None,
    ) -> Object:
        pause = _PAUSE_SECONDS
        for left in reversed(range(_TRIES)):
            status, answer, wait_seconds = await self._once(
                method, self._url(collection, name), query, body, accept
            )
            if 200 <= status < 300:
                return answer
            if left and (status == 0 or status in _PASSING):
                await asyncio.sleep(min(wait_seconds or pause, _MAX_PAUSE_SECONDS))
                pause *= 2
                continue
            what = collection if name is None else f"{collection}/{name}"
            raise ApiError(
                status, _refusal(status, method, what, self.namespace, str(answer.get("message") or ""))
            )
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        accept: str | None,
    ) -> tuple[int, Object, float]:
        """Status (0 for no answer), the object or the refusal, and how long the server asks us to wait."""
        options = await asyncio.to_thread(self._access.options)
        if accept is not None:
            options["headers"]["Accept"] = accept
        if method == "PATCH":
            options["headers"]["Content-Type"] = "application/merge-patch+json"
        try:
            async with self._session.request(method, url, params=query, json=body, **options) as response:
                text = await response.text()
                seconds = response.headers.get("Retry-After", "")
                return response.status, _object(text), float(seconds) if seconds.isdigit() else 0.0
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return 0, {"message": _told(error)}, 0.0

    def _url(self, collection: str, name: str | None = None) -> str:
        group = "apis/coordination.k8s.io/v1" if collection == "leases" else "api/v1"
        url = f"{self._access.host}/{group}/namespaces/{quote(self.namespace)}/{collection}"
        return url if name is None else f"{url}/{quote(name)}"


def _object(text: str) -> Object:
    try:
        found = json.loads(text)
    except ValueError:
        return {"message": text.strip()[:200]}
    return found if isinstance(found, dict) else {}


def _told(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().rstrip(".")


def _refusal(status: int, method: str, what: str, namespace: str, message: str = "") -> str:
    told = f": {message.strip().rstrip('.')}" if message else ""
    if status == 0:
        return f"The API server does not answer{told}."
    if status == 401:
        return f"The API server does not accept the worker's credentials{told}."
    if status == 403:
        return (
            f"The worker may not {_VERBS.get(method, method)} {what} in namespace {namespace!r}{told}. "
            "docs/how-to/pods.md names the rights it needs."
        )
    return f"The API server answered {status} to {method} {what} in namespace {namespace!r}{told}."


_VERBS: Final = {
    "POST": "create",
    "GET": "get or list",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
