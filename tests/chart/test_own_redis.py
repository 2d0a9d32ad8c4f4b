"""The queue's server, started by the very command and configuration that the chart renders."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


@pytest.fixture
def server(newest, tmp_path, missing_part):
    """Its socket, with the password `secret`; folders and port as they are free here."""
    if shutil.which("redis-server") is None:
        missing_part("redis-server is not to be had.")
    manifests = newest.template("--set", "redis.maxmemoryMiB=64,redis.appendfsync=always")
    [config] = [each["data"]["redis.conf"] for each in manifests if "redis.conf" in each.get("data", {})]
    [stateful] = [each for each in manifests if each["kind"] == "StatefulSet"]
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    path, port = tmp_path / "redis.conf", _free_port()
    path.write_text(config.replace("dir /data", f"dir {tmp_path}").replace("port 6379", f"port {port}"))
    command = [part.replace("/etc/zubble-redis/redis.conf", str(path)) for part in container["command"]]
    environment = {**os.environ, "REDISCLI_AUTH": "secret"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            yield port, process, container
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _answering(port: int) -> redis.Redis:
    client = redis.Redis(port=port, password="secret", retry=Retry(NoBackoff(), 0))
    for _ in range(200):
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.05)
        else:
            return client
    raise AssertionError("the server never answered")


def test_it_keeps_what_it_was_told_asks_for_the_password_and_is_process_one(server):
    port, process, container = server
    client = _answering(port)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port, retry=Retry(NoBackoff(), 0)).ping()
    assert client.info("server")["process_id"] == process.pid, "signals reach it, not a shell"
    told = client.config_get("appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "save")
    assert told == {
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory": str(64 * 1024**2),
        "maxmemory-policy": "noeviction",
        "save": "",
    }
    probe = [
        part.replace(" ping", f" -p {port} ping") for part in container["readinessProbe"]["exec"]["command"]
    ]
    good, wrong = ({**os.environ, "REDISCLI_AUTH": word} for word in ("secret", "guess"))
    assert subprocess.run(probe, env=good, check=False, stderr=subprocess.DEVNULL).returncode == 0
    assert subprocess.run(probe, env=wrong, check=False, stderr=subprocess.DEVNULL).returncode != 0
    client.close()
