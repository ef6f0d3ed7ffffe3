"""Text for a terminal: measured, cut, coloured; and numbers and times as people read them. Pure."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from math import ceil

from tpujob.domain.text import dollars

STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


def width(text: str) -> int:
    """How many columns clean text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """At most that many columns; what was cut shows as `…`."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        used += _cells(char)
        if used > columns - 1:
            break
        kept += char
    return kept + "…" if columns > 0 else ""


def clip_middle(text: str, columns: int) -> str:
    """As `clip`, but keeps both ends: zones differ at theirs."""
    if width(text) <= columns or columns < 5 or not text.isascii():
        return clip(text, columns)
    tail = min(4, columns // 2)
    return f"{text[: columns - tail - 1]}…{text[-tail:]}"


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Filled with spaces up to that many columns."""
    space = " " * max(0, columns - width(text))
    return space + text if right else text + space


def paint(text: str, style: str, on: bool) -> str:
    """In a style of `STYLES`, where colour is on."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if on and style else text


def wrap(text: str, columns: int) -> list[str]:
    """Lines of at most that many columns. Words, and commands in backquotes, stay whole, to be copied."""
    lines = [""]
    for word in re.findall(r"`[^`]*`\S*|\S+|(?<= )(?= )", text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width(longer) <= columns or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line.rstrip() for line in lines]


# Numbers and times ---------------------------------------------------------------------------------------------------


def seconds(at: str | None) -> float | None:
    """A view's RFC 3339 time as seconds since the epoch; None when it is missing or malformed."""
    if not at:
        return None
    try:
        parsed = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def clock(at: str | None) -> str:
    """The local time of day of a view's time."""
    since = seconds(at)
    return "--:--:--" if since is None else datetime.fromtimestamp(since).strftime("%H:%M:%S")


def span(value: float | None) -> str:
    """A duration in its two largest units: 8s, 2m10s, 3h05m, 4d02h."""
    if value is None:
        return "?"
    whole = max(0, int(value))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def age(value: float | None) -> str:
    """A duration in one unit, for a narrow column: 8s, 2m, 3h, 4d."""
    if value is None:
        return "?"
    whole = max(0, int(value))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def usd(value: float | None) -> str:
    """An amount of a view in US dollars, as `dollars` shows it; rounded up, so that no price looks like none."""
    return "price unknown" if value is None else dollars(ceil(value * 1_000_000))


def rate(value: float | None) -> str:
    return "price unknown" if value is None else f"{usd(value)}/h"


def count(value: int) -> str:
    """A step number in at most five characters: 950, 12.0k, 1.5M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 10 * size or (value >= size and unit != "k"):
            short = value / size
            return f"{short:.0f}{unit}" if short >= 100 else f"{short:.1f}{unit}"
    return str(value)


def number(value: float | None) -> str:
    """A loss or a metric, to four significant digits."""
    return "-" if value is None else f"{value:.4g}"
