"""Logs of the processes that stay: to standard error, for people on a terminal, as JSON lines elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, TextIO, cast

import structlog

from zubble_queue.redaction import redact, without_secrets


def log_to_stderr(*, quiet: bool = False) -> None:
    """Configure structlog and the standard library's logging for this process; quiet: warnings only."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            _renderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING if quiet else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Redacting("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _Stderr:
    """The standard error of the moment: loggers are made once, and another stream may take its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _Redacting(logging.Formatter):
    """With the traceback, and without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


def _renderer() -> Any:
    if sys.stderr.isatty():
        return structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)
    return structlog.processors.JSONRenderer()
