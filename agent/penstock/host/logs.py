"""The log: structured, on standard error, as text for people or JSON lines for machines."""

from __future__ import annotations

import logging
import sys

import structlog

__all__ = ["configure"]


def configure(level: str, form: str) -> None:
    """Set up the process's log. `level` is debug, info, warning or error; `form` is text or json."""
    renderer: structlog.typing.Processor
    renderer = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Forwarder()], force=True)


class _Forwarder(logging.Handler):
    """Brings what libraries, and the parts of Penstock that know the standard library only, log into the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        structlog.get_logger(record.name).log(record.levelno, record.getMessage())
