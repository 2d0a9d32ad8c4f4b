"""The same work under the same faults as plain Celery tasks with late acknowledgement; see docs/chaos.md."""
