"""What a command leaves running is there for the next one where the task asks for it, and nowhere else."""

from __future__ import annotations

from zubble_queue.testing import structured_reply as say

_CONNECT = "import socket; socket.create_connection(('127.0.0.1', 8000), 5)"
_SERVE = (
    "python3 -m http.server 8000 >/dev/null 2>&1 & "
    f'until python3 -c "{_CONNECT}" 2>/dev/null; do sleep 0.1; done; echo up >up.txt'
)
_ASK = f'python3 -c "{_CONNECT}" && echo >reached.txt || echo >gone.txt'
_TURNS = [
    say("plan", steps=["serve", "ask", "submit"]),
    say("run", command=_SERVE, plan_step_id=1),
    say("run", command=_ASK, plan_step_id=2),
    say("submit", report="the second command knows"),
]


async def test_a_server_of_the_first_command_is_reached_by_the_second_where_the_task_asks_for_it(install):
    zubble = await install({"with": _TURNS, "plain": _TURNS})
    await zubble.submit(
        zubble.task("with", sandbox={"background": True}, verify_command="test -f up.txt -a -f reached.txt"),
        zubble.task("plain", verify_command="test -f up.txt -a -f gone.txt"),
    )
    zubble.start_worker()

    lasting, plain = await zubble.sealed("with"), await zubble.sealed("plain")

    assert [view.outcome for view in (lasting, plain)] == ["verified", "verified"], zubble.log()
