"""zubble-queue: a distributed job queue of sandboxed LLM agents."""

__version__ = "0.1.0"
