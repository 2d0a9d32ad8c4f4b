"""What attempts are about, in six areas and the rest, and how old ones are told in a line (Z13)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeVar, get_args

T = TypeVar("T")

Bucket = Literal["network", "compute", "storage", "auth", "rbac", "cert", "other"]
KEPT: Final = 20
"""Attempts that are told one by one; of older ones only their number."""
_READ_CHARS: Final = 1_000
_NAMED: Final[dict[Bucket, str]] = {
    "cert": r"cert\w* x509 tls ssl openssl csr pem ca[-_]bundle",
    "rbac": r"rbac (?:cluster)?role(?:binding)?s? forbidden can-i serviceaccounts? sa",
    "auth": r"auth\w* unauthori[sz]ed login passw(?:or)?d credentials? tokens? 40[13] kubeconfig sudo",
    "network": r"network\w* dns curl wget ping dig nslookup ports? sockets? connect(?:ions?)? resolv\w* "
    r"routes? ingress endpoints? iptables netstat ss ip nc https? proxy firewall unreachable",
    "storage": r"storage disks? df du mount\w* umount pvc?s? volumes? inodes? quotas? fsck filesystems?",
    "compute": r"cpus? memory oom\w* process(?:es)? ps top pods? containers? crashloop\w* restart\w* nodes? "
    r"systemctl services? replicas? deployments? killed scheduler docker kubectl",
}
"""Words of each area, the most special first: a certificate that has expired is seen through the network."""
_WORDS: Final = {
    bucket: re.compile(rf"(?i)(?<![a-z0-9])(?:{'|'.join(words.split())})(?![a-z])")
    for bucket, words in _NAMED.items()
}


def bucket_of(*texts: str) -> Bucket:
    """The area of an attempt, by its words: the first text that names one decides."""
    for text in texts:
        for bucket, words in _WORDS.items():
            if words.search(text[:_READ_CHARS]):
                return bucket
    return "other"


def split(attempts: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Those that are only counted, and the last ones, which are told one by one."""
    old = max(len(attempts) - KEPT, 0)
    return attempts[:old], attempts[old:]


def counted(attempts: Iterable[tuple[Bucket, bool]]) -> str:
    """As in `network 3 (2 failed), storage 1`.

    Args:
        attempts: Area of each, and whether it failed.
    """
    taken = list(attempts)
    tried, failed = Counter(bucket for bucket, _ in taken), Counter(bucket for bucket, bad in taken if bad)
    told = (
        f"{bucket} {tried[bucket]}{f' ({failed[bucket]} failed)' if failed[bucket] else ''}"
        for bucket in get_args(Bucket)
        if tried[bucket]
    )
    return ", ".join(told)
