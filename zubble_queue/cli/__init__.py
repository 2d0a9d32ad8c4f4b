"""`zubble …`: one module per command group. Imports of other parts happen when a command needs them."""

from zubble_queue.cli.main import main

__all__ = ["main"]
