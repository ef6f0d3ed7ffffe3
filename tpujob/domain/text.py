"""Text for people: sanitised text, durations, amounts, counts. Pure, and cheap to import.

`cli/render/text.py` measures, cuts and colours text for a terminal.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil

from tpujob.protocol.text import ESCAPES, HARMFUL, visible


def clean(text: str, *, tabs: bool = False) -> str:
    """Return the text as one line without escape sequences and invisible characters. Indentation stays; tabs become
    spaces unless `tabs`."""
    text = visible(text).replace("\n", " ")
    return text if tabs else text.expandtabs(4)


def harmless(text: str) -> str:
    """Return the text like `clean`, but with its lines: for a web page."""
    if text.isascii() and text.isprintable():
        return text
    return HARMFUL.sub("", ESCAPES.sub("", text))


def one_line(text: str, limit: int) -> str:
    """Return the cleaned words with single spaces, at most `limit` characters."""
    return " ".join(clean(text[: limit * 4]).split())[:limit]


def within(text: str, size: int) -> str:
    """Return the text like `one_line`, cut to `size` bytes of JSON in UTF-8; `…` marks a cut."""
    line = one_line(text, size + 1)
    if _bytes(line) <= size:
        return line
    while line and _bytes(line) > size - len("…".encode()):
        line = line[:-1]
    return f"{line.rstrip()}…"


def _bytes(line: str) -> int:
    return len(line.encode()) + line.count('"') + line.count("\\")


def duration(seconds: float) -> str:
    """Return a duration as `45 s`, `15 min`, `2.5 h`, `3 days`."""
    for unit, size, least in (("days", 86400, 2 * 86400), ("h", 3600, 5400), ("min", 60, 120)):
        if seconds >= least:
            value = f"{seconds / size:.{0 if unit == 'min' else 1}f}".removesuffix(".0")
            return f"{value} {unit}"
    return f"{seconds:.0f} s"


def dollars(micros: int) -> str:
    """Return micro-dollars as `$1,250.00`, with fractions of a cent below one cent."""
    if 0 < micros < 100:
        return "under $0.0001"
    usd = micros / 1_000_000
    return f"${usd:.4f}" if 0 < abs(usd) < 0.01 else f"${usd:,.2f}"


def rfc3339(seconds: float) -> str:
    """Return a time in the API's format (RFC 3339, UTC)."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc(seconds: float) -> str:
    """Return a time as `2026-11-29 14:05 UTC`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def many(n: int, thing: str) -> str:
    """Return a count with its noun: `1 host`, `1,250 hosts`."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def with_article(noun: str) -> str:
    """Return a noun with its article: `a spot v4-8`, `an on-demand v4-8`."""
    return f"an {noun}" if noun.startswith(tuple("aeio")) else f"a {noun}"


def listed(things: Sequence[str]) -> str:
    """Return an enumeration: `a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(things[:-1]), *things[-1:]) if part)


def amount_of_bytes(size: float) -> str:
    """Return a size as `512 B` or `39.1 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def list_hosts(numbers: Sequence[int]) -> str:
    """Return host numbers as `host 3` or `hosts 0, 4`."""
    return ("host " if len(numbers) == 1 else "hosts ") + ", ".join(map(str, numbers))


# Log lines -----------------------------------------------------------------------------------------------------------


#: in front of each line of a block, the host in group 1
FRONT = re.compile(r"^(\d+) (?:\d{1,11}\.\d{3} )?", re.MULTILINE)
_RAW = re.compile(FRONT.pattern.encode(), re.MULTILINE)
_TAGGED = re.compile(FRONT.pattern.encode() + rb"\[(?:tpujob|setup|stack)\] .*\n", re.MULTILINE)


def of_program(block: bytes) -> bytes:
    """Return the block without the lines of the agent and of set-up, which begin with their tag. A program's own line
    that begins so is left out, too."""
    return _TAGGED.sub(b"", block)


def raw(block: bytes) -> bytes:
    """Return the lines as the program wrote them."""
    return _RAW.sub(b"", block)


def with_hosts(block: bytes) -> bytes:
    """Return lines as the program wrote them, each behind its host: `0| step 1`."""
    return _RAW.sub(rb"\1| ", block)


# Numbers, money and times --------------------------------------------------------------------------------------------


def seconds(at: str | None) -> float | None:
    """Parse a view's RFC 3339 time to seconds since the epoch; None if it is missing or malformed."""
    if not at:
        return None
    try:
        parsed = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def span(value: float | None) -> str:
    """Return a duration in its two largest units: 8s, 2m10s, 3h05m, 4d02h."""
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
    """Return a duration in one unit, for a narrow column: 8s, 2m, 3h, 4d."""
    if value is None:
        return "?"
    whole = max(0, int(value))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def usd(value: float | None) -> str:
    """Return a view's amount in US dollars, formatted by `dollars` and rounded up, so that no price shows as $0."""
    return "price unknown" if value is None else dollars(ceil(value * 1_000_000))


def rate(value: float | None) -> str:
    return "price unknown" if value is None else f"{usd(value)}/h"


def count(value: int) -> str:
    """Return a step number in at most five characters: 950, 12.0k, 1.5M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 10 * size or (value >= size and unit != "k"):
            short = value / size
            return f"{short:.0f}{unit}" if short >= 100 else f"{short:.1f}{unit}"
    return str(value)


def number(value: float | None) -> str:
    """Return a loss or a metric with four significant digits; in full from 1,000 to a billion."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def unreadable(jobs: Sequence[str]) -> str:
    """Return the sentence about jobs whose records cannot be read; empty: there are none."""
    if not jobs:
        return ""
    shown = listed([*jobs[:3], *([f"{len(jobs) - 3} more"] if len(jobs) > 3 else [])])
    records = f"record of job {shown}" if len(jobs) == 1 else f"records of jobs {shown}"
    return f"the {records} cannot be read, and a slice may be billed: see `tpujob leaks` and `tpujob fsck`"
