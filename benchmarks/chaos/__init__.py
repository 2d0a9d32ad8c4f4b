"""A batch under faults, and whether the queue keeps its promises; see docs/chaos.md."""
