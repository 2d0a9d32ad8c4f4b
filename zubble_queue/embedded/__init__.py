"""The one-machine default: a Valkey server on a unix socket in a private folder, and local workers.

The same code path as with a Redis of one's own; only who starts the server differs. Nothing listens on TCP.
"""

from zubble_queue.embedded.crew import Crew
from zubble_queue.embedded.server import Embedded

__all__ = ["Crew", "Embedded"]
