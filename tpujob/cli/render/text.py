"""Text for a terminal: measuring, cutting, colour, and the local time of day. Pure."""

import re
import unicodedata
from datetime import datetime

from tpujob.domain.text import clean, seconds

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
    """Return the number of terminal columns that clean text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """Return the text in at most `columns` columns; `…` stands for what was cut."""
    if width(text) <= columns:
        return text
    head = ""
    used = 0
    for char in text:
        used += _char_width(char)
        if used > columns - 1:
            break
        head += char
    return head + "…" if columns > 0 else ""


def clip_middle(text: str, columns: int) -> str:
    """Return the text in at most `columns` columns, with both ends kept: zones differ at their ends."""
    if width(text) <= columns or columns < 5 or not text.isascii():
        return clip(text, columns)
    tail = min(4, columns // 2)
    return f"{text[: columns - tail - 1]}…{text[-tail:]}"


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Return the text filled with spaces to `columns` columns."""
    space = " " * max(0, columns - width(text))
    return space + text if right else text + space


def paint(text: str, style: str, on: bool) -> str:
    """Return the text in a style of `STYLES` if colour is on."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if on and style else text


def wrap(text: str, columns: int) -> list[str]:
    """Return lines of at most `columns` columns. Words, and commands in backquotes, are not broken."""
    lines = [""]
    for word in re.findall(r"`[^`]*`\S*|\S+|(?<= )(?= )", text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width(longer) <= columns or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line.rstrip() for line in lines]


def wrap_indented(text: str, columns: int, indent: int) -> list[str]:
    """Return the cleaned text as lines of at most `columns` columns, each after `indent` spaces."""
    return [" " * indent + line for line in wrap(clean(text), max(20, columns - indent))]


def amount_text(value: float) -> str:
    """Return an amount of work, or a speed: `10B`, `1.5M`, `12,000`, `0.25`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def local_time(at: str | None) -> str:
    """Return the local date and time of a view's time."""
    moment = seconds(at)
    if moment is None:
        return "-" * 19
    return datetime.fromtimestamp(moment).isoformat(" ", timespec="seconds")


def clock(at: str | None) -> str:
    """Return the local time of day of a view's time."""
    moment = seconds(at)
    return "--:--:--" if moment is None else datetime.fromtimestamp(moment).strftime("%H:%M:%S")
