"""The log of a backend process, on standard error. What comes from outside can neither forge a line nor fill a disk."""

import json
import logging
import os
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from tpujob.domain.text import clean
from tpujob.lib import log_context

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MAX_LINE = 2000  #: characters of a line
MAX_LINES = 200  #: of a message, or of a traceback
LARGEST = 10 * 1024**2  #: bytes of a log file; the one before it is kept beside it


def log_to_stderr(file: Path | None = None, *, formatter: logging.Formatter | None = None) -> None:
    """Log to standard error, without the lines that libraries write about every call. `file`: where standard error may
    lead; if it does, at `LARGEST` bytes it becomes `.log.1`, and a new one begins. `formatter`: lines for people if
    left out. A second call replaces the first."""
    handler: logging.Handler = logging.StreamHandler()
    if file and file.exists() and os.path.samestat(os.fstat(2), file.stat()):
        handler = _Rotated(file, maxBytes=LARGEST, backupCount=1)
    handler.setFormatter(formatter or OneLine(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("paramiko", "google", "uvicorn.access", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class OneLine(logging.Formatter):
    """Formats records for people. The first line ends with the record's subject: `[job=000042 attempt=2]`. Further
    lines, such as a traceback, follow behind bars."""

    def format(self, record: logging.LogRecord) -> str:
        first, *continuation = (
            clean(line[:MAX_LINE]) for line in super().format(record).splitlines()
        )
        about = " ".join(f"{name}={clean(value)}" for name, value in _about().items())
        first += f" [{about}]" * bool(about)
        return "\n".join([first, *(f"    | {line}" for line in continuation[:MAX_LINES])])


class Json(logging.Formatter):
    """Formats records for machines: one line of JSON with `time`, `severity`, `logger`, `message`, and `job`, `attempt`
    and `request` where known. Google Cloud reads `time` and `severity` as its own."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        lines = [line[:MAX_LINE] for line in super().format(record).splitlines()]
        entry: dict[str, str] = {
            "time": at.replace("+00:00", "Z"),
            "severity": record.levelname,
            "logger": record.name,
            "message": "\n".join(lines[: MAX_LINES + 1]),
        }
        return json.dumps(entry | _about())


def _about() -> dict[str, str]:
    context = log_context.facts()
    return {name: context[name] for name in log_context.NAMES if context.get(name)}


class _Rotated(RotatingFileHandler):
    """The file that standard error leads to; what writes there without this handler goes to the new one, too."""

    def doRollover(self) -> None:  # noqa: N802
        super().doRollover()
        with open(self.baseFilename, "ab") as new:
            os.fchmod(new.fileno(), 0o600)
            for stream in (1, 2):
                os.dup2(new.fileno(), stream)
