"""The way out of a sandbox with an allow-list: one proxy for each, outside of it, behind a Unix socket.

`open_for` is all that a backend needs: it binds the folder at INSIDE_FOLDER, has a forwarder listen inside at
PORT for the socket, and adds the environment. Where no folder can be bound a `Carrier` brings connections to
the socket. `forget` and `forget_silent` are for the reaper.
"""

from zubble_sandbox.egress.opening import (
    ENV,
    INSIDE_FOLDER,
    INSIDE_SOCKET,
    PORT,
    Egress,
    forget,
    forget_silent,
    open_for,
    while_opening,
)

__all__ = [
    "ENV",
    "INSIDE_FOLDER",
    "INSIDE_SOCKET",
    "PORT",
    "Egress",
    "forget",
    "forget_silent",
    "open_for",
    "while_opening",
]
