"""URLs of every kind, against real servers: TLS, users, sockets, replicas, clusters, Sentinels."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zubble_queue.contracts.envelope import Header
from zubble_queue.errors import CannotStart
from zubble_queue.settings import Settings
from zubble_queue.stores.redis import RedisStore
from zubble_worker.app import CeleryPublisher, queue_name

servers = sys.modules["store_tests_servers"]
PASSWORD = "p@ss:w/rd"
QUOTED = "p%40ss%3Aw%2Frd"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def start(request, missing_part):
    """Start a Redis with options beside its Unix socket; all end with the test."""
    running = []

    def begin(*options: str):
        try:
            context = servers.started("redis", *options)
            server = context.__enter__()
        except servers.NotInstalled as missing:
            missing_part(str(missing))
        running.append(context)
        return server

    yield begin
    for context in reversed(running):
        context.__exit__(None, None, None)


async def usable(url: str) -> bool:
    """Whether a store can be opened and read there, and Celery's messages be sent to the same place."""
    store = await RedisStore.connect(url)
    publisher = CeleryPublisher(Settings.load({"redis_url": url}))
    header = Header(task_id="1-a-00000000", batch="b", source_id="a", attempt=1, model="m")
    try:
        await publisher.publish([header])
        queue = f"zubble:celery:{queue_name('zubble', header.need.key)}"
        where = await store._do("EXISTS", queue)
        return await store.batches() == [] and await publisher.depth(header.need.key) > 0 and bool(where)
    finally:
        await publisher.aclose()
        await store.aclose()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory, missing_part) -> Path:
    """A folder with ca.pem, and cert.pem and key.pem signed by it for localhost."""
    if shutil.which("openssl") is None:
        missing_part("openssl is not installed.")
    folder: Path = tmp_path_factory.mktemp("tls")
    (folder / "san").write_text("subjectAltName=DNS:localhost\n")
    for arguments in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out request.pem",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile san -out cert.pem",
    ):
        subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def tls_port(start, certificates) -> int:
    port = free_port()
    try:
        start(
            *("--tls-port", str(port), "--tls-ca-cert-file", str(certificates / "ca.pem")),
            *("--tls-cert-file", str(certificates / "cert.pem")),
            *("--tls-key-file", str(certificates / "key.pem")),
        )
    except RuntimeError as untaught:
        if "Bad directive" in str(untaught):
            pytest.skip("redis-server was built without TLS.")
        raise
    return port


async def test_tls_with_a_known_authority_and_a_client_certificate(tls_port, certificates):
    names = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "cert.pem", "ssl_keyfile": "key.pem"}
    options = "&".join(f"{name}={certificates / file}" for name, file in names.items())

    assert await usable(f"rediss://localhost:{tls_port}/1?{options}")


async def test_an_unknown_authority_is_refused_by_default(tls_port):
    with pytest.raises(CannotStart, match=r"^Redis at rediss://localhost:\d+ does not answer: .*certificate"):
        await RedisStore.connect(f"rediss://localhost:{tls_port}")


async def test_a_certificate_for_another_name_is_refused(tls_port, certificates):
    with pytest.raises(CannotStart, match=r"does not answer: .*certificate"):
        await RedisStore.connect(f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={certificates / 'ca.pem'}")


async def test_a_password_is_needed_where_there_is_one_and_quoted_in_the_url(start):
    server = start()
    server.admin().config_set("requirepass", PASSWORD)

    assert await usable(server.url.replace("unix://", f"unix://:{QUOTED}@"))
    for url in (server.url, server.url.replace("unix://", "unix://:wrong@")):
        with pytest.raises(CannotStart, match=r"^Redis at unix:///.*/socket refused the user or password\.$"):
            await RedisStore.connect(url)


async def test_the_database_of_a_url_is_the_one_that_is_used(start):
    server = start()

    assert await usable(f"{server.url}?db=3")
    with pytest.raises(CannotStart, match="DB index is out of range"):
        await RedisStore.connect(f"{server.url}?db=99")


async def test_a_replica_is_refused(start):
    primary_port, replica = free_port(), start()
    start("--port", str(primary_port))
    replica.admin().replicaof("127.0.0.1", primary_port)

    with pytest.raises(CannotStart, match=r"is a read-only replica; name its primary\.$"):
        await RedisStore.connect(replica.url)


async def test_a_cluster_is_refused(start):
    ports = "--port", str(free_port()), "--cluster-port", str(free_port())  # else 10,000 above it
    node = start("--cluster-enabled", "yes", *ports)

    with pytest.raises(CannotStart, match=r"is a cluster; a standalone server is needed\.$"):
        await RedisStore.connect(node.url)


async def test_a_server_that_is_too_old_is_refused():
    """What a Redis 6.2 answers, from a socket that says nothing else."""
    info = b"# Server\r\nredis_version:6.2.14\r\nrole:master\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while words := await reader.read(65_536):
            writer.write(
                b"$%d\r\n%s\r\n" % (len(info), info)
                if b"$4\r\nINFO\r\n" in words.upper()
                else b"+OK\r\n" * words.count(b"*")
            )
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as old:
        port = old.sockets[0].getsockname()[1]
        with pytest.raises(CannotStart, match=r"is Redis 6\.2\.14; 7\.0 or newer is needed\.$"):
            await RedisStore.connect(f"redis://127.0.0.1:{port}")


@pytest.fixture
def sentinel(start, tmp_path) -> Iterator[tuple[int, str]]:
    """Port of a Sentinel that watches a master with a password; and that master's socket URL."""
    port, master_port = free_port(), free_port()
    master = start("--port", str(master_port))
    master.admin().config_set("requirepass", "inner")
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\ndir {tmp_path}\nsentinel monitor mymaster 127.0.0.1 {master_port} 1\n"
        "sentinel auth-pass mymaster inner\nrequirepass outer\n"
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(["redis-server", str(config), "--sentinel"], stdout=log)
    yield port, master.url
    process.kill()
    process.wait()


async def until_usable(url: str) -> bool:
    for _ in range(200):
        try:
            return await usable(url)
        except CannotStart:
            await asyncio.sleep(0.05)
    return await usable(url)


async def test_a_sentinel_says_where_the_master_is(sentinel):
    port, _ = sentinel
    nobody = free_port()

    assert await until_usable(
        f"sentinel://:inner@127.0.0.1:{nobody},127.0.0.1:{port}/mymaster/2?sentinel_password=outer"
    )


async def test_a_sentinel_that_knows_no_such_master_is_one_sentence(sentinel):
    port, _ = sentinel
    await until_usable(f"sentinel://:inner@127.0.0.1:{port}/mymaster?sentinel_password=outer")

    with pytest.raises(
        CannotStart, match=r"^Redis at sentinel://127.0.0.1:\d+/other does not answer: No master"
    ):
        await RedisStore.connect(f"sentinel://:inner@127.0.0.1:{port}/other?sentinel_password=outer")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sentinel://host:26379", "after the Sentinels it must name their master"),
        ("sentinel://host:26379/m/zero", "the database must be a number, not 'zero'"),
        ("redis://host/first", "the database must be a number, not 'first'"),
        ("redis://host?retries=5", "there is no option 'retries' for redis://"),
        ("redis://host?ssl_ca_certs=x", "there is no option 'ssl_ca_certs' for redis://"),
        ("rediss://host?ssl_ca_certs=/nowhere.pem", "ssl_ca_certs '/nowhere.pem' cannot be read"),
        ("rediss://host?ssl_cert_reqs=maybe", "ssl_cert_reqs must be one of required, none, not 'maybe'"),
        ("http://host", "it begins with none of redis://"),
    ],
)
async def test_a_url_that_cannot_be_used_is_one_sentence_without_the_password(url, problem):
    secret = url.replace("://", "://user:hidden@")

    with pytest.raises(CannotStart, match="is no Redis URL") as refused:
        await RedisStore.connect(secret)

    assert problem in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert str(refused.value).count("\n") == 0
