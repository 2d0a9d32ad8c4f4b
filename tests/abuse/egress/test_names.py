"""Attacks 36, 39, 40, 42 on the egress proxy: names, and where they lead."""

from __future__ import annotations

import os

import pytest

from .conftest import EVIL, PUBLIC

ALLOWED = ("allowed.example", "*.below.example")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://allowed.example/", "allowed.example"),
        ("http://ALLOWED.Example:80/", "allowed.EXAMPLE:80"),
        ("http://a.below.example/", "a.below.example"),
    ],
)
async def test_an_allowed_host_is_reached_however_its_letters_are_cased(world, url, host):
    way = await world.way_out(*ALLOWED)
    assert (await world.get(way, url, host)).endswith(b"hello")
    assert world.outside.dialled == [(PUBLIC, 80)]
    (use,) = way.uses()
    assert (use.host, use.allowed, use.denied) == (host.lower().partition(":")[0], 1, 0)
    assert use.sent_bytes == 0, "a head is written anew; bodies are counted"
    assert use.received_bytes == len(world.web.answer)


async def test_an_allowed_host_is_reached_through_tls(world):
    way = await world.way_out(*ALLOWED)
    assert (await world.secure_get(way, "allowed.example:443", "allowed.example")).endswith(b"hello")
    assert (await world.secure_get(way, "Allowed.Example:443", "allowed.example")).endswith(b"hello")
    (use,) = way.uses()
    assert (use.allowed, use.denied) == (2, 0)
    assert use.sent_bytes > 0
    assert use.received_bytes > len(world.tls.answer)


async def test_an_internationalised_host_is_allowed_by_either_spelling_and_asked_for_by_its_a_labels(world):
    way = await world.way_out("b\u00fccher.example")
    assert (await world.get(way, "http://xn--bcher-kva.example/", "xn--bcher-kva.example")).endswith(b"hello")
    refused = await world.get(way, "http://b\u00fccher.example/", "b\u00fccher.example")
    assert refused.startswith(b"HTTP/1.1 400 ")
    assert len(world.outside.dialled) == 1


TRICKS = [
    "evil.example",
    "EVIL.example",
    "allowed.example.evil.example",
    "evilallowed.example",
    "allowed.example.",
    "allowed-example",
    "below.example",
    "a.below.example.evil.example",
    "xbelow.example",
    "allowed.example@evil.example",
    "evil.example\\@allowed.example",
    "evil.example%00.allowed.example",
    "xn--llowed-cta.example",
    "localhost",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "0251.0376.0251.0376",
    "127.1",
    "[::1]",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "::1",
]


@pytest.mark.parametrize("name", TRICKS)
@pytest.mark.parametrize("form", ["tunnel", "plain"])
async def test_a_host_that_is_not_on_the_list_is_denied_logged_and_not_even_looked_up(
    world, logged, name, form
):
    way = await world.way_out(*ALLOWED)
    if form == "tunnel":
        answer = await world.ask(way, f"CONNECT {name}:443 HTTP/1.1\r\n\r\n".encode())
    else:
        answer = await world.get(way, f"http://{name}/", name)
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert world.outside.asked == []
    assert world.outside.dialled == []
    (line,) = [line for line in logged if line.get("action") == "egress_denied"]
    assert (line["reason"], line["sandbox"]) == ("host", f"egress-{os.getpid()}")
    (use,) = way.uses()
    assert (use.host, use.denied, use.reasons) == (line["host"], 1, ("host",))
    assert (await world.get(way, "http://allowed.example/", "allowed.example")).endswith(b"hello"), "control"


@pytest.mark.parametrize(
    "data", [b"evil.example\0.allowed.example", b"allowed.example\0", b"b\xc3\xbccher.example"]
)
async def test_odd_bytes_in_a_name_are_no_request(world, data):
    way = await world.way_out(*ALLOWED)
    answer = await world.ask(way, b"CONNECT %s:443 HTTP/1.1\r\n\r\n" % data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert world.outside.asked == []
    assert world.reasons(way) == {"-": ("malformed",)}


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "192.168.0.1", "::1", "::ffff:127.0.0.1",
     "::ffff:7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254", "fe80::1", "224.0.0.1", "0.0.0.0"],
)  # fmt: skip
async def test_an_allowed_name_that_leads_inside_is_denied(world, logged, address):
    world.outside.names["allowed.example"] = [[address]]
    way = await world.way_out(*ALLOWED)
    answer = await world.get(way, "http://allowed.example/", "allowed.example")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"not a public address" in answer
    assert world.outside.dialled == []
    assert world.reasons(way) == {"allowed.example": ("address",)}
    assert [line["reason"] for line in logged if line.get("action") == "egress_denied"] == ["address"]


async def test_a_metadata_name_is_denied_although_it_was_allowed(world):
    world.outside.names["metadata.google.internal"] = [["169.254.169.254"]]
    way = await world.way_out("metadata.google.internal")
    answer = await world.get(
        way, "http://metadata.google.internal/", "metadata.google.internal", "Metadata-Flavor: Google"
    )
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert world.outside.dialled == []


async def test_a_name_that_changes_between_the_check_and_the_dial_changes_nothing(world):
    world.outside.names["allowed.example"] = [[PUBLIC], ["127.0.0.1"]]
    way = await world.way_out(*ALLOWED)
    assert (await world.get(way, "http://allowed.example/", "allowed.example")).endswith(b"hello")
    assert world.outside.dialled == [(PUBLIC, 80)], "what was checked is what is dialled"
    assert world.outside.asked == ["allowed.example"], "and it was looked up once"
    again = await world.get(way, "http://allowed.example/", "allowed.example")
    assert again.startswith(b"HTTP/1.1 403 ")
    assert world.outside.dialled == [(PUBLIC, 80)]


async def test_of_several_addresses_only_public_ones_are_dialled(world):
    world.outside.names["allowed.example"] = [["127.0.0.1", "::1", PUBLIC, "10.0.0.1"]]
    way = await world.way_out(*ALLOWED)
    assert (await world.get(way, "http://allowed.example/", "allowed.example")).endswith(b"hello")
    assert world.outside.dialled == [(PUBLIC, 80)]


async def test_a_redirect_is_a_request_of_its_own(world):
    world.web.answer = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nConnection: close\r\n\r\n"
    way = await world.way_out(*ALLOWED)
    answer = await world.get(way, "http://allowed.example/", "allowed.example")
    assert b"Location: http://127.0.0.1/" in answer
    assert (await world.get(way, "http://127.0.0.1/", "127.0.0.1")).startswith(b"HTTP/1.1 403 ")
    assert world.outside.dialled == [(PUBLIC, 80)]


async def test_an_empty_list_denies_everything(world):
    way = await world.way_out()
    for name in ("allowed.example", "evil.example"):
        assert (await world.get(way, f"http://{name}/", name)).startswith(b"HTTP/1.1 403 ")
    assert world.outside.asked == []
    assert world.reasons(way) == {"allowed.example": ("host",), "evil.example": ("host",)}


async def test_two_sandboxes_have_a_list_each(world):
    first, second = await world.way_out("allowed.example"), await world.way_out("evil.example")
    assert first.folder != second.folder
    for way, name, other in (
        (first, "allowed.example", "evil.example"),
        (second, "evil.example", "allowed.example"),
    ):
        assert (await world.get(way, f"http://{name}/", name)).endswith(b"hello")
        assert (await world.get(way, f"http://{other}/", other)).startswith(b"HTTP/1.1 403 ")
    assert world.outside.dialled == [(PUBLIC, 80), (EVIL, 80)]


async def test_what_cannot_be_resolved_or_reached_is_said(world):
    way = await world.way_out("nowhere.example", "allowed.example", ports=(80, 81))
    assert b"cannot be resolved" in await world.get(way, "http://nowhere.example/", "nowhere.example")
    refused = await world.get(way, "http://allowed.example:81/", "allowed.example:81")
    assert refused.startswith(b"HTTP/1.1 502 ")
    assert b"does not answer on port 81" in refused
    assert world.reasons(way) == {"nowhere.example": ("unresolved",), "allowed.example": ("unreachable",)}
