"""Attack 41 on the egress proxy: a request that says one thing and means another, and one without an end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time

import pytest

from zubble_sandbox.egress.tally import MAX_HOSTS, MAX_LINES, OTHERS

from .conftest import PUBLIC

MIB = 1_048_576
HOST = "allowed.example"


@pytest.mark.parametrize("sni", ["evil.example", "sub.allowed.example", None])
async def test_a_tunnel_whose_hello_names_another_host_is_closed_before_a_byte_goes_out(world, logged, sni):
    way = await world.way_out(HOST)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await world.secure_get(way, f"{HOST}:443", sni)
    assert world.tls.got == [], "no handshake was finished"
    assert world.reasons(way) == {HOST: ("sni",)}
    assert [line["reason"] for line in logged if line.get("action") == "egress_denied"] == ["sni"]
    assert (await world.secure_get(way, f"{HOST}:443", HOST)).endswith(b"hello"), "control"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x00\x05hello",
    ],
)
async def test_a_tunnel_carries_tls_only(world, data):
    world.outside.ports[443] = world.outside.ports[80]
    way = await world.way_out(HOST)
    answer = await world.ask(way, b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n" + data)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert not answer.endswith(b"hello")
    assert [bytes(got) for got in world.web.got] == [b""]
    assert world.reasons(way) == {HOST: ("sni",)}


async def test_a_hello_in_small_pieces_is_put_together(world):
    way = await world.way_out(HOST)
    reader, writer = await world.connect(way)
    writer.write(b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    given, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=world.trust)
    tls = context.wrap_bio(given, sent, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    for byte in sent.read():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    given.write(await reader.read(65_536))
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    assert tls.version() is not None, "the host has answered"
    writer.close()


@pytest.mark.parametrize("port", [22, 25, 6379, 8443])
async def test_a_port_that_was_not_allowed_is_denied(world, port):
    way = await world.way_out(HOST)
    assert (await world.ask(way, b"CONNECT allowed.example:%d HTTP/1.1\r\n\r\n" % port)).startswith(
        b"HTTP/1.1 403 "
    )
    assert (await world.get(way, f"http://{HOST}:{port}/", f"{HOST}:{port}")).startswith(b"HTTP/1.1 403 ")
    assert world.reasons(way) == {HOST: ("port",)}
    assert world.outside.asked == []


@pytest.mark.parametrize("named", ["evil.example", "allowed.example.evil.example", "allowed.example:22", ""])
async def test_a_host_header_that_names_another_host_is_refused(world, named):
    way = await world.way_out(HOST)
    assert (await world.get(way, f"http://{HOST}/", named)).startswith(b"HTTP/1.1 400 ")
    assert world.reasons(way) == {HOST: ("host_header",)}
    assert world.web.got == []


SECOND = b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"


@pytest.mark.parametrize(
    "smuggling",
    [
        b"GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n" + SECOND,
        b"POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 4\r\n\r\nbody"
        + SECOND,
        b"GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nConnection: keep-alive\r\n\r\n"
        + SECOND,
        b"GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n"
        b"Upgrade: h2c\r\nConnection: upgrade\r\n\r\n" + SECOND,
    ],
)
async def test_nothing_is_smuggled_behind_a_request(world, smuggling):
    way = await world.way_out(HOST)
    answer = await world.ask(way, smuggling)
    assert answer.count(b"HTTP/1.1 200 ") == 1
    (got,) = world.web.got
    assert b"evil" not in got
    assert got.count(b"HTTP/1.1") == 1
    assert b"connection: close" in got
    assert world.outside.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "fields",
    [
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SECOND,
        b"Transfer-Encoding: xchunked\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n",
        b"X: 1\n Transfer-Encoding: chunked\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
        b"Content-Length: 0\r\nX: 1\nContent-Length: 99\r\n\r\n",
    ],
)
async def test_a_body_with_two_lengths_is_refused(world, fields):
    way = await world.way_out(HOST)
    answer = await world.ask(
        way, b"POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n" + fields
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert world.web.got == []


async def test_a_body_is_carried_whole(world):
    way = await world.way_out(HOST)
    body = bytes(range(256)) * 4_096
    head = (
        b"POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    assert (await world.ask(way, head + body)).endswith(b"hello")
    assert bytes(world.web.got[0]).endswith(body)
    (use,) = way.uses()
    assert use.sent_bytes == len(body)


async def test_an_answer_that_comes_before_the_whole_body_arrives(world):
    world.web.hasty = True
    way = await world.way_out(HOST)
    head = b"POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 200000\r\n\r\n"
    assert (await world.ask(way, head + bytes(150_000))).endswith(b"hello")


async def test_a_body_that_is_cut_short_is_never_taken_for_a_whole_one(world):
    way = await world.way_out(HOST)
    head = b"POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 200000\r\n\r\n"
    reader, writer = await world.connect(way)
    writer.write(head + bytes(100_000))
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


async def poured(writer, total: int) -> int:
    """Write until nobody takes any more for a while; how much was taken."""
    piece, taken = bytes(65_536), 0
    with contextlib.suppress(OSError):
        while taken < total:
            writer.write(piece)
            async with asyncio.timeout(0.5):
                await writer.drain()
            taken += len(piece)
    return taken


@pytest.mark.parametrize("beginning", [b"", b"GET http://allowed.example/ HTTP/1.1\r\nX: "])
async def test_a_head_without_an_end_is_refused_and_not_kept(world, beginning):
    way = await world.way_out(HOST)
    reader, writer = await world.connect(way)
    writer.write(beginning)
    assert await poured(writer, 1_024 * MIB) < 2 * MIB
    with contextlib.suppress(ConnectionError):
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    writer.close()
    assert world.reasons(way) == {"-": ("too_large",)}
    assert (await world.get(way, f"http://{HOST}/", HOST)).endswith(b"hello"), "control"


async def test_a_body_that_the_host_does_not_take_is_not_kept_either(world):
    world.web.reads = False
    way = await world.way_out(HOST)
    _, writer = await world.connect(way)
    head = b"POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % (1_024 * MIB))
    assert await poured(writer, 1_024 * MIB) < 32 * MIB, "what the kernel's buffers of three sockets hold"
    writer.transport.abort()


async def test_a_client_that_dawdles_is_closed(world):
    way = await world.way_out(HOST, opening_seconds=0.3)
    reader, writer = await world.connect(way)
    answering = asyncio.create_task(reader.read())
    with contextlib.suppress(ConnectionError):
        for byte in b"GET http://allowed.example/ HTTP/1.1\r\n" * 1_000:
            if answering.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
    assert (await answering).startswith(b"HTTP/1.1 408 ")
    writer.close()
    assert world.reasons(way) == {"-": ("slow",)}


async def test_a_tunnel_whose_hello_does_not_come_is_closed(world):
    way = await world.way_out(HOST, opening_seconds=0.3)
    reader, writer = await world.connect(way)
    writer.write(b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n\x16\x03\x01")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert world.reasons(way) == {HOST: ("slow",)}
    writer.close()


async def test_a_connection_on_which_nothing_moves_is_closed(world):
    world.web.reads = False
    way = await world.way_out(HOST, idle_seconds=0.3)
    assert await world.get(way, f"http://{HOST}/", HOST) == b""


async def test_connections_beyond_the_cap_wait_for_their_turn(world):
    way = await world.way_out(HOST, connections=2, opening_seconds=60.0)
    held = [await world.connect(way) for _ in range(2)]
    asking = asyncio.create_task(world.get(way, f"http://{HOST}/", HOST))
    done, _ = await asyncio.wait({asking}, timeout=0.3)
    assert not done
    held[0][1].close()
    assert (await asking).endswith(b"hello")
    held[1][1].close()


async def test_a_sandbox_that_connects_without_pause_is_slowed_down(world):
    way = await world.way_out(new_per_second=50.0, burst=5.0)
    started = time.monotonic()
    for _ in range(30):
        await world.ask(way, b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
    assert time.monotonic() - started >= 24 / 50, "five at once, then one every 20 ms"


async def test_a_flood_of_names_is_counted_in_bounded_room_and_logged_up_to_a_point(world, logged):
    way = await world.way_out(HOST)
    for number in range(MAX_LINES + 50):
        await world.ask(way, b"CONNECT n%d.evil.example:443 HTTP/1.1\r\n\r\n" % number)
    uses = way.uses()
    assert len(uses) == MAX_HOSTS + 1
    assert sum(use.denied for use in uses) == MAX_LINES + 50
    assert next(use.denied for use in uses if use.host == OTHERS) == MAX_LINES + 50 - MAX_HOSTS
    lines = [line["action"] for line in logged]
    assert lines.count("egress_denied") == MAX_LINES
    assert lines.count("egress_muted") == 1


async def test_an_end_breaks_every_connection_and_leaves_nothing(world):
    world.web.reads = False
    way = await world.way_out(HOST)
    asking = asyncio.create_task(world.get(way, f"http://{HOST}/", HOST))
    while not world.web.got:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)
    before = len(asyncio.all_tasks())
    await way.close()
    await way.close()
    assert await asking == b""
    assert not way.folder.exists()
    assert len(asyncio.all_tasks()) < before
    with pytest.raises(OSError):
        await world.connect(way)


async def test_only_the_worker_and_the_sandbox_can_reach_a_socket(world):
    way = await world.way_out(HOST)
    assert way.folder.parent.stat().st_mode & 0o777 == 0o700
    assert way.folder.stat().st_mode & 0o777 == 0o711
    assert (way.folder / "proxy").stat().st_mode & 0o777 == 0o666


async def test_a_fault_of_our_own_costs_one_connection_and_not_the_proxy(world, logged, monkeypatch):
    way = await world.way_out(HOST)
    with monkeypatch.context() as broken:
        broken.setattr("zubble_sandbox.egress.requests.parse", lambda head: head.no_such_attribute)
        assert await world.get(way, f"http://{HOST}/", HOST) == b""
    (fault,) = [line for line in logged if line.get("action") == "egress_failed"]
    logged.remove(fault)
    assert (await world.get(way, f"http://{HOST}/", HOST)).endswith(b"hello")
