"""Tasks in containers: made for them, and there before them. A real engine, a real worker."""

from __future__ import annotations

import contextlib
import shlex

import pytest

from benchmarks.docker_engine import TOOLS_IMAGE
from zubble_queue.contracts.ending import Stop
from zubble_queue.testing import structured_reply as say

from .conftest import wait_until

pytestmark = pytest.mark.slow

MAKE = [say("run", command="echo made >done.txt", reasoning="as asked"), say("submit", report="it is there")]
REPAIR = [
    say("run", command="echo fixed >/etc/service.conf; ls /tmp", reasoning="it is broken"),
    say("submit", report="repaired"),
]


class Container:
    """Somebody's container with a service that is broken."""

    name = "dev-1"

    def __init__(self, client) -> None:
        self._client = client
        self._client.create_container(
            TOOLS_IMAGE,
            name=self.name,
            command=["/bin/sh", "-c", "mkdir -p /tmp /etc /work; while :; do sleep 1000; done"],
            host_config=client.create_host_config(network_mode="none"),
        )
        self._client.start(self.name)

    def sh(self, text):
        prepared = self._client.exec_create(self.name, ["/bin/sh", "-c", text])
        return self._client.exec_start(prepared["Id"]).decode()


@pytest.fixture
def container(docker_engine):
    with contextlib.closing(docker_engine.client()) as client:
        yield Container(client)
        client.remove_container(Container.name, force=True)


def allow(zubble, engine, **attached):
    zubble.config["sandboxes"] = {
        "docker": {"host": engine.host, "image": TOOLS_IMAGE, "min_free_mb": 100},
        "attached": {"host": engine.host, "allow": ["dev-*"], **attached},
    }
    return zubble.start_worker(ZUBBLE_WORKER__SANDBOXES="docker,attached")


async def test_a_task_is_run_and_checked_in_containers_made_for_it(install, docker_engine):
    zubble = await install({"made": MAKE})
    await zubble.submit(zubble.task("made", sandbox={"backend": "docker"}))
    allow(zubble, docker_engine)
    ending = (await zubble.sealed("made")).ending
    assert (ending.outcome, ending.isolation) == ("verified", "docker")
    with contextlib.closing(docker_engine.client()) as client:

        async def nothing_is_left() -> bool:
            return client.containers(all=True, filters={"label": "zubble.sandbox"}) == []

        await wait_until(nothing_is_left, "its containers are removed", evidence=zubble.log)


async def test_a_container_is_repaired_checked_where_it_is_and_left_as_it_was(
    install, docker_engine, container
):
    zubble = await install({"repair": REPAIR})
    check = "grep -qx fixed /etc/service.conf && ! test -e $ZUBBLE_VERIFY/check"
    sandbox, verify = {"backend": "attached", "container": container.name}, {"location": "environment"}
    await zubble.submit(zubble.task("repair", sandbox=sandbox, verify=verify, verify_command=check))
    allow(zubble, docker_engine)
    view = await zubble.sealed("repair")
    assert (view.ending.outcome, view.ending.isolation) == ("verified", "attached dev-1"), view.ending
    assert container.sh("cat /etc/service.conf") == "fixed\n", "what the agent did stays"

    async def nothing_is_left() -> bool:
        return not container.sh("ls -A /tmp") and "supervise" not in container.sh("cat /proc/[0-9]*/cmdline")

    await wait_until(nothing_is_left, "what was brought in is taken away", evidence=zubble.log)


@pytest.mark.parametrize("asked", ["prod-1", "dev-2"])
async def test_a_container_that_is_not_allowed_or_not_there_is_refused(
    install, docker_engine, container, asked
):
    zubble = await install({"repair": REPAIR})
    sandbox, verify = {"backend": "attached", "container": asked}, {"location": "environment"}
    await zubble.submit(zubble.task("repair", sandbox=sandbox, verify=verify))
    allow(zubble, docker_engine)
    ending = (await zubble.sealed("repair")).ending
    assert ending.stop is Stop.INVALID
    assert shlex.quote(asked) in ending.reason.replace('"', "'") or asked in ending.reason
    assert container.sh("ls -A /tmp; ls /etc/service.conf 2>/dev/null") == ""
