"""The log: structured, on standard error, as text for people or JSON lines for machines."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

__all__ = ["Logger", "configure", "get_logger"]


class Logger:
    """A module's own. structlog comes with the first line that is logged: its import would be a fifth of the start of
    every command, and most commands log nothing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _structlog(self) -> FilteringBoundLogger:
        import structlog

        return cast("FilteringBoundLogger", structlog.get_logger(self._name))

    def debug(self, event: str, **values: object) -> None:
        """What helps to find a fault."""
        self._structlog().debug(event, **values)

    def info(self, event: str, **values: object) -> None:
        """What was done."""
        self._structlog().info(event, **values)

    def warning(self, event: str, **values: object) -> None:
        """What somebody should know of."""
        self._structlog().warning(event, **values)

    def error(self, event: str, **values: object) -> None:
        """What somebody has to see to."""
        self._structlog().error(event, **values)

    def exception(self, event: str, **values: object) -> None:
        """An error, with the exception that is being handled."""
        self._structlog().exception(event, **values)


def get_logger(name: str) -> Logger:
    """The logger of the module of this name."""
    return Logger(name)


def configure(level: str, form: str) -> None:
    """Set up the process's log. `level` is debug, info, warning or error; `form` is text or json."""
    import structlog

    renderer: Processor
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
        import structlog

        structlog.get_logger(record.name).log(record.levelno, record.getMessage())
