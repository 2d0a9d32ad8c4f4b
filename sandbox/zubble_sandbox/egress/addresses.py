"""Which addresses no sandbox may reach: all but public ones, and those of this machine.

Names that public addresses carry are what an allow-list is about. Everything else belongs to somebody's
inside: loopback, private networks, link-local ones with their metadata services, multicast, and every form
that hides an IPv4 address in an IPv6 one.
"""

from __future__ import annotations

import errno
import socket
import struct
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from typing import Final

_SPECIAL_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
        ),
    )
)
"""The IANA IPv4 Special-Purpose Address Registry, then multicast and everything above it."""
_METADATA: Final = frozenset({ip_address("168.63.129.16")})
"""Public in form; in fact the agent that Azure has beside each machine."""
_PUBLIC_6: Final = IPv6Network("2000::/3")
"""All that is given out as global unicast; outside lie ::1, ::ffff:0:0/96, 64:ff9b::/96, fc00::/7, fe80::/10,
fec0::/10 and ff00::/8."""
_SPECIAL_6: Final = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))
)
"""Within it, from the IANA IPv6 registry: protocol assignments with Teredo, documentation, 6to4, AS112."""

_NLMSG_HDR: Final = struct.Struct("=IHHII")
_RTMSG: Final = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ERRNO: Final = struct.Struct("=i")
_NO_ROUTE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH})
_NLMSG_ERROR: Final = 2
_NLM_F_REQUEST, _RTM_NEWROUTE, _RTM_GETROUTE, _RTA_DST, _RTN_UNICAST = 1, 24, 26, 1, 1
_TYPE_AT: Final = 7
"""Where rtmsg has the kind of a route."""
_ANSWER_BYTES: Final = 4_096


def problem(address: str) -> str | None:
    """Why an address must not be dialled, as the end of a sentence; None where it may be.

    Args:
        address: As a resolver wrote it; anything that is no plain address is refused.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return "no address at all"
    if isinstance(parsed, IPv4Address):
        public = not any(parsed in block for block in _SPECIAL_4) and parsed not in _METADATA
    else:
        inside = parsed in _PUBLIC_6 and not any(parsed in block for block in _SPECIAL_6)
        public = inside and parsed.scope_id is None
    if not public:
        return "not a public address"
    return "an address of this machine" if _is_ours(parsed.version, parsed.packed) else None


def _is_ours(version: int, packed: bytes) -> bool:
    """Whether the kernel would keep packets to it here, by its routing table, which knows all our addresses.

    What it does not answer, or answers in another way, counts as ours.
    """
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    route = _RTMSG.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    payload = route + _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _RTA_DST) + packed
    header = _NLMSG_HDR.pack(_NLMSG_HDR.size + len(payload), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.bind((0, 0))
            kernel.send(header + payload)
            answer = kernel.recv(_ANSWER_BYTES)
    except OSError:
        return True
    _, kind, *_ = _NLMSG_HDR.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        return -_ERRNO.unpack_from(answer, _NLMSG_HDR.size)[0] not in _NO_ROUTE
    return kind != _RTM_NEWROUTE or answer[_NLMSG_HDR.size + _TYPE_AT] != _RTN_UNICAST
