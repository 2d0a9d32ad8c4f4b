"""A head has one reading or none; what is passed on means to another parser what it meant to ours."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.contracts.hosts import host_name
from zubble_sandbox.egress import requests
from zubble_sandbox.egress.refusal import Refused
from zubble_sandbox.egress.requests import HEADERS, Request, Target


def head(first: str | bytes, *fields: str | bytes) -> bytes:
    lines = [line if isinstance(line, bytes) else line.encode("latin-1") for line in (first, *fields)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def plain(*fields: str | bytes, url: str = "http://a.example/x?y=1", method: str = "GET") -> bytes:
    return head(f"{method} {url} HTTP/1.1", "Host: a.example", *fields)


def reason(data: bytes) -> str:
    with pytest.raises(Refused) as refused:
        requests.parse(data)
    return refused.value.reason


@pytest.mark.parametrize(
    ("first", "fields", "target"),
    [
        ("CONNECT a.example:443 HTTP/1.1", ["Host: a.example:443"], Target("a.example", 443)),
        ("CONNECT a.example:443 HTTP/1.1", ["Host: a.example"], Target("a.example", 443)),
        ("CONNECT a.example:443 HTTP/1.0", [], Target("a.example", 443)),
        ("CONNECT A.Example:8443 HTTP/1.1", ["host:a.EXAMPLE:8443 "], Target("a.example", 8443)),
        ("CONNECT xn--bcher-kva.example:443 HTTP/1.1", [], Target("xn--bcher-kva.example", 443)),
    ],
)
def test_a_tunnel_is_asked_for_by_name_and_port(first, fields, target):
    assert requests.parse(head(first, *fields)) == Request(target, tunnel=True)


def test_a_plain_request_is_written_anew():
    asked = requests.parse(
        head(
            "POST HTTP://A.example:8080?q HTTP/1.1",
            "HOST: a.example:8080",
            "Accept:  text/*\t",
            "Connection: X-Secret, keep-alive",
            "X-Secret: 1",
            "Proxy-Authorization: Basic x",
            "Proxy-Connection: keep-alive",
            "Upgrade: websocket",
            "Content-Length: 5",
            b"X-Latin: \xe9",
        )
    )
    assert asked == Request(
        Target("a.example", 8080),
        tunnel=False,
        head=b"POST /?q HTTP/1.1\r\nhost: a.example:8080\r\naccept: text/*\r\ncontent-length: 5\r\n"
        b"x-latin: \xe9\r\nconnection: close\r\n\r\n",
        body_bytes=5,
    )


def test_an_old_client_may_leave_the_host_out_and_gets_an_old_answer():
    asked = requests.parse(head("GET http://a.example HTTP/1.0"))
    assert asked.head == b"GET / HTTP/1.0\r\nhost: a.example\r\nconnection: close\r\n\r\n"


def test_a_length_that_the_connection_header_names_is_passed_on():
    assert (
        b"content-length: 3" in requests.parse(plain("Connection: content-length", "Content-Length: 3")).head
    )


@pytest.mark.parametrize(
    "authority",
    [
        "localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "::1",
        "a.example.",
        "a.example@evil.example",
        "user:word@a.example",
        "evil.example\\@a.example",
        "a.example%00.evil.example",
        "a.example%2eevil.example",
        "a_b.example",
        "a..example",
        ".example.org",
        "*.example.org",
        "a.example,b.example",
    ],
)
@pytest.mark.parametrize("form", ["CONNECT {}:443", "GET http://{}:80/"])
def test_what_is_no_name_of_a_host_goes_nowhere(authority, form):
    assert reason(head(f"{form.format(authority)} HTTP/1.1", f"Host: {authority}")) == "host"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (head("CONNECT evil.example\0.a.example:443 HTTP/1.1"), "malformed"),
        (head(b"CONNECT b\xc3\xbccher.example:443 HTTP/1.1"), "malformed"),
        (head("CONNECT a.example HTTP/1.1"), "malformed"),
        (head("CONNECT a.example: HTTP/1.1"), "host"),
        (head("CONNECT a.example:0 HTTP/1.1"), "malformed"),
        (head("CONNECT a.example:65536 HTTP/1.1"), "malformed"),
        (head("CONNECT a.example:+443 HTTP/1.1"), "host"),
        (head("CONNECT http://a.example:443/ HTTP/1.1"), "host"),
        (head("CONNECT a.example:443 HTTP/1.1", "Content-Length: 1"), "malformed"),
        (head("CONNECT a.example:443 HTTP/1.1", "Host: b.example:443"), "host_header"),
        (head("CONNECT a.example:443 HTTP/1.1", "Host: a.example:80"), "host_header"),
        (head("GET / HTTP/1.1", "Host: a.example"), "malformed"),
        (head("GET https://a.example/ HTTP/1.1", "Host: a.example"), "malformed"),
        (head("GET ftp://a.example/ HTTP/1.1", "Host: a.example"), "malformed"),
        (head("GET http://a.example/#part HTTP/1.1", "Host: a.example"), "malformed"),
        (head("GET http://a.example/a b HTTP/1.1", "Host: a.example"), "malformed"),
        (head("GET  http://a.example/ HTTP/1.1", "Host: a.example"), "malformed"),
        (head("GET http://a.example/ HTTP/2.0", "Host: a.example"), "malformed"),
        (head("GET http://a.example/", "Host: a.example"), "malformed"),
        (head("get http://a.example/ HTTP/1.1", "Host: a.example"), "malformed"),
        (head("GET http://a.example/ HTTP/1.1"), "malformed"),
        (head("GET http://a.example/ HTTP/1.1", "Host: b.example"), "host_header"),
        (head("GET http://a.example/ HTTP/1.1", "Host: a.example:8080"), "host_header"),
        (head("GET http://a.example/ HTTP/1.1", "Host: "), "host_header"),
        (head("GET http://a.example/ HTTP/1.1", "Host: a.example.b.example"), "host_header"),
        (plain("Host: a.example"), "malformed"),
        (plain("Transfer-Encoding: chunked"), "malformed"),
        (plain("Transfer-Encoding: chunked", "Content-Length: 3"), "malformed"),
        (plain("Transfer-Encoding: identity"), "malformed"),
        (plain("Content-Length: 3", "Content-Length: 3"), "malformed"),
        (plain("Content-Length: 3, 3"), "malformed"),
        (plain("Content-Length: +3"), "malformed"),
        (plain("Content-Length: 0x3"), "malformed"),
        (plain("Content-Length: -1"), "malformed"),
        (plain("Content-Length:"), "malformed"),
        (plain("Content-Length: 9999999999999999"), "malformed"),
        (plain(b"Content-Length: \xb2"), "malformed"),
        (plain("Content-Length : 3"), "malformed"),
        (plain(" Content-Length: 3"), "malformed"),
        (plain("X: 1\r\n folded"), "malformed"),
        (plain("X: 1\nHost: b.example"), "malformed"),
        (plain("X: 1\rY: 2"), "malformed"),
        (plain("X: \0"), "malformed"),
        (plain("no colon"), "malformed"),
        (plain(": empty"), "malformed"),
        (plain(*(["X: 1"] * HEADERS)), "too_large"),
        (b"\r\n\r\n", "malformed"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "malformed"),
    ],
)
def test_what_has_two_readings_or_none_is_refused(data, expected):
    assert reason(data) == expected


def test_what_a_sandbox_sent_is_printable_wherever_it_is_shown():
    with pytest.raises(Refused) as refused:
        requests.parse(head(b"CONNECT \x21\x7e" + b"x" * 500 + b":443 HTTP/1.1"))
    assert refused.value.host.isprintable()
    assert len(refused.value.host) <= 100
    answer = refused.value.answer
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert answer.count(b"\r\n\r\n") == 1


PIECES = st.sampled_from(
    [
        b"GET ", b"CONNECT ", b"http://", b"a.example", b"evil.example", b":80", b":443", b"/", b"@", b"?",
        b"#", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b"Host: a.example",
        b"Host: evil.example", b"Content-Length: 3", b"Content-Length: 5", b"Transfer-Encoding: chunked",
        b"Connection: close", b"X: y", b"\xff", b".", b",",
    ]
)  # fmt: skip
HEADS = st.one_of(
    st.lists(PIECES, max_size=12).map(b"".join).map(lambda data: data + b"\r\n\r\n"),
    st.binary(max_size=200).map(lambda data: data + b"\r\n\r\n"),
    st.tuples(
        st.sampled_from([plain("Content-Length: 3", method="POST"), head("CONNECT a.example:443 HTTP/1.1")]),
        st.integers(0, 120),
        PIECES,
    ).map(lambda drawn: drawn[0][: drawn[1]] + drawn[2] + drawn[0][drawn[1] :]),
)


@given(HEADS)
def test_what_is_passed_on_is_one_request_to_another_parser_as_well(data: bytes):
    data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    try:
        asked = requests.parse(data)
    except Refused:
        return
    assert host_name(asked.target.host) == asked.target.host
    assert asked.target.host.encode() in data.lower()
    if asked.tunnel:
        return
    server = h11.Connection(h11.SERVER)
    server.receive_data(asked.head + b"x" * asked.body_bytes)
    understood = server.next_event()
    fields = dict(understood.headers)
    port = f":{asked.target.port}" if asked.target.port != 80 else ""
    assert fields[b"host"] == f"{asked.target.host}{port}".encode()
    assert int(fields.get(b"content-length", b"0")) == asked.body_bytes
    assert b"transfer-encoding" not in fields
    body = b""
    while isinstance(event := server.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert len(body) == asked.body_bytes
    assert server.trailing_data == (b"", False)
