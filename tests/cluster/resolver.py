"""Names of a node's services: answers `NAME.NAMESPACE.svc…` with the addresses of the pods behind it.

    python resolver.py KUBECONFIG ADDRESS    serve on port 53 of ADDRESS, over UDP

No virtual address is needed then; a service's port must be its pods'. Any other name does not exist.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">6H")
_A, _NO_SUCH_NAME, _FAILED = 1, 3, 2


def main(kubeconfig: str, address: str) -> None:
    config = json.loads(Path(kubeconfig).read_text("utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )

    def addresses(namespace: str, service: str) -> list[str]:
        request = urllib.request.Request(
            f"{cluster['server']}/api/v1/namespaces/{namespace}/endpoints/{service}",
            headers={"Authorization": f"Bearer {user['token']}"},
        )
        with opener.open(request, timeout=5) as answer:
            subsets = json.load(answer).get("subsets") or []
        return [each["ip"] for subset in subsets for each in subset.get("addresses") or []]

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        while True:
            query, asker = server.recvfrom(4096)
            server.sendto(_answer(query, addresses), asker)


def _answer(query: bytes, addresses) -> bytes:
    labels, at = [], _HEADER.size
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    (kind,) = struct.unpack_from(">H", query, at + 1)
    found, verdict = [], _NO_SUCH_NAME
    if labels[2:3] == ["svc"] and labels[3:] in ([], ["cluster", "local"]):
        try:
            found, verdict = addresses(labels[1], labels[0]), 0
        except urllib.error.HTTPError:
            verdict = _NO_SUCH_NAME
        except OSError:
            verdict = _FAILED
    records = [
        struct.pack(">HHHIH", 0xC00C, _A, 1, 1, 4) + socket.inet_aton(each) for each in found if kind == _A
    ]
    identity = query[:2]
    counts = struct.pack(">5H", 0x8580 | verdict, 1, len(records), 0, 0)
    return identity + counts + query[_HEADER.size : at + 5] + b"".join(records)


if __name__ == "__main__":
    main(*sys.argv[1:])
