"""The engine's frames around our bytes."""

from __future__ import annotations

import asyncio

import pytest

from zubble_sandbox.engine.line import DockerLine, ExecRefused
from zubble_sandbox.line import LineLost

TAKEN_OVER = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"


def framed(stream, data):
    return bytes((stream, 0, 0, 0)) + len(data).to_bytes(4, "big") + data


@pytest.fixture
async def engine():
    """Answers the first request with what it is given, and keeps what it hears; a way to a line over it."""
    servers, heard = [], []

    async def connect(answer):
        async def serve(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
            heard.append(head + await reader.readexactly(length))
            writer.write(answer)
            if answer.startswith(TAKEN_OVER):
                heard.append(await reader.read(1_000))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        port = server.sockets[0].getsockname()[1]
        return await DockerLine.take_over(*await asyncio.open_connection("127.0.0.1", port), "1.41", "abc")

    connect.heard = heard
    yield connect
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_frames_are_joined_and_cut_as_they_are_asked_for(engine):
    line = await engine(TAKEN_OVER + framed(1, b"ab") + framed(1, b"") + framed(1, b"cdefg"))
    assert await line.read_exactly(3) == b"abc"
    assert await line.read_exactly(4) == b"defg"
    await line.write(b"hello")
    with pytest.raises(LineLost, match="relay in the container ended"):
        await line.read_exactly(1)
    assert engine.heard[0].startswith(b"POST /v1.41/exec/abc/start HTTP/1.1\r\n")
    assert engine.heard[1] == b"hello"
    await line.close()


async def test_what_the_program_complains_of_is_no_data(engine):
    line = await engine(TAKEN_OVER + framed(2, b"no socket\n") + framed(1, b"x"))
    assert await line.read_exactly(1) == b"x"
    await line.write(b".")
    with pytest.raises(LineLost, match="no socket"):
        await line.read_exactly(1)
    await line.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'HTTP/1.1 409 Conflict\r\n\r\n{"message":"it is paused"}', "it is paused"),
        (b"HTTP/1.1 500 Oops\r\n\r\nhtml", "html"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "does not say why"),
    ],
)
async def test_a_refusal_is_told_in_the_engines_words(engine, answer, said):
    with pytest.raises(ExecRefused, match=said):
        await engine(answer)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101", b"nonsense\r\n\r\n", b"x" * 100_000])
async def test_an_answer_that_is_none_is_a_lost_line(engine, answer):
    with pytest.raises(LineLost):
        await engine(answer)


async def test_a_frame_that_is_too_large_breaks_the_line(engine):
    line = await engine(TAKEN_OVER + b"\1\0\0\0\xff\xff\xff\xff")
    with pytest.raises(LineLost, match="4294967295"):
        await line.read_exactly(1)
    await line.close()
