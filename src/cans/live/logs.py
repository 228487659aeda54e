"""Logs as one JSON object per line, or as text for people, on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

STYLES = ("json", "text")
LONGEST_VALUE = 300  # characters of anything in a line: some of it was said by others
MOST_LINES = 20  # about the same event ...
WINDOW_SECONDS = 10.0  # ... in this time
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **extras(record),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        words = " ".join(f"{key}={value}" for key, value in extras(record).items())
        line = f"{clock} {record.levelname.lower():7} {record.getMessage()} {words}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class Throttle(logging.Filter):
    """Lets a few lines about an event through, and says later how many there were: whoever can
    cause a line must not be able to fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}  # event -> start of its window, lines in it

    def filter(self, record: logging.LogRecord) -> bool:
        event = str(record.msg)[:LONGEST_VALUE]
        start, lines = self._seen.get(event, (-WINDOW_SECONDS, 0))
        if record.created - start >= WINDOW_SECONDS:
            if lines > MOST_LINES:
                record.not_shown = lines - MOST_LINES
            start, lines = record.created, 0
        self._seen[event] = (start, lines + 1)
        return lines < MOST_LINES


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """What was said beside the message, each value bounded; not what a library (Ray) puts into
    every record of the process."""
    found = {key: value for key, value in vars(record).items() if _was_said(key)}
    return {key: bounded(value) for key, value in found.items()}


def _was_said(key: str) -> bool:
    return key not in _STANDARD and not key.startswith("_")


def bounded(value: Any) -> Any:
    """A value as a line can hold it: numbers as they are, text of bounded length."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... ({len(text)})"


def silence_grpc() -> None:
    """Keep gRPC's own log (a line for every failed handshake, another for a port that is taken)
    off standard error, unless GRPC_VERBOSITY is set. To be called before gRPC is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def start_logging(style: str, level: str = "info") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Throttle())
    handler.setFormatter(JsonLines() if style == "json" else Text())
    logger = logging.getLogger("cans")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
