"""Logs as one JSON object per line, or as text for people, on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

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


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """What was said beside the message."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def start_logging(style: str, level: str = "info") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else Text())
    logger = logging.getLogger("cans")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
