"""The name in a TLS hello, as a real TLS library writes it, and as nobody should."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_sandbox.egress import hello

LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


def records(name: str | None, **versions: ssl.TLSVersion) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for field, value in versions.items():
        setattr(context, field, value)
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name).do_handshake()
    return sent.read()


def handshake(name: str | None, **versions: ssl.TLSVersion) -> bytes:
    sent = records(name, **versions)
    assert hello.record_bytes(sent[:5]) == len(sent) - 5
    assert hello.hello_bytes(sent[5:9]) == len(sent) - 5
    return sent[5:]


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data


def names(*pairs: tuple[int, bytes]) -> bytes:
    entries = b"".join(bytes([kind]) + len(name).to_bytes(2, "big") + name for kind, name in pairs)
    return len(entries).to_bytes(2, "big") + entries


def made(*extensions: bytes) -> bytes:
    """A hello with these extensions and nothing else."""
    joined = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(joined).to_bytes(2, "big") + joined
    return b"\x01" + len(body).to_bytes(3, "big") + body


@given(st.lists(LABELS, min_size=1, max_size=4).map(".".join))
def test_the_name_is_the_one_that_a_tls_library_was_given(name: str):
    assert hello.server_name(handshake(name)) == name


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_every_version_of_tls_is_read(version):
    data = handshake("a.example", minimum_version=version, maximum_version=version)
    assert hello.server_name(data) == "a.example"


def test_a_name_among_other_extensions_is_found():
    data = made(
        extension(0xFE0D, b"grease"), extension(0, names((0, b"a.example"))), extension(43, b"\x02\x03\x04")
    )
    assert hello.server_name(data) == "a.example"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (made(), "names no server"),
        (
            made(extension(0, names((0, b"a.example"))), extension(0, names((0, b"b.example")))),
            "names no server",
        ),
        (made(extension(0, names((0, b"a.example"), (0, b"b.example")))), "more than it says"),
        (made(extension(0, names((1, b"a.example")))), "names no host"),
        (made(extension(0, names((0, b"\xc3\xbc.example")))), "names no host"),
        (made(extension(0, b"")), "cut short"),
        (made(extension(0, names((0, b"a.example")) + b"x")), "more than it says"),
        (made(extension(0, names((0, b"a.example")))) + b"x", "more than it says"),
        (made(extension(0, names((0, b"a.example"))))[:-1], "cut short"),
    ],
)
def test_a_hello_that_does_not_name_just_one_host_is_refused(data, problem):
    with pytest.raises(ValueError, match=problem):
        hello.server_name(data)


def test_a_hello_without_a_name_is_refused():
    with pytest.raises(ValueError, match="names no server"):
        hello.server_name(handshake(None))


@pytest.mark.parametrize(
    "header", [b"\x17\x03\x03\x00\x10", b"\x16\x02\x00\x00\x10", b"\x16\x03\x01\x00\x00", b"GET /"]
)
def test_what_is_no_handshake_is_no_tls(header):
    with pytest.raises(ValueError, match="not TLS"):
        hello.record_bytes(header)


@pytest.mark.parametrize("header", [b"\x02\x00\x00\x10", b"\x01\xff\xff\xff", b"\x01\x00\x40\x01"])
def test_a_handshake_that_begins_otherwise_or_is_too_long_is_refused(header):
    with pytest.raises(ValueError, match="does not begin with a hello"):
        hello.hello_bytes(header)


@given(st.binary(max_size=400))
def test_no_bytes_are_more_than_refused(data: bytes):
    try:
        name = hello.server_name(data)
    except ValueError:
        return
    assert name.encode() in data


@given(st.integers(0, 600), st.binary(min_size=1, max_size=3))
def test_a_hello_that_was_tampered_with_names_nothing_it_does_not_hold(at: int, change: bytes):
    data = handshake("allowed.example")
    data = data[:at] + change + data[at + len(change) :]
    try:
        name = hello.server_name(data)
    except ValueError:
        return
    assert name.encode() in data
