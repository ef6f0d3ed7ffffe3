"""Numbers, money and times of views, as people read them in a terminal, on a page and in a notebook. Pure."""

from datetime import UTC, datetime
from math import ceil

from tpujob.domain.text import dollars


def seconds(at: str | None) -> float | None:
    """A view's RFC 3339 time as seconds since the epoch; None when it is missing or malformed."""
    if not at:
        return None
    try:
        parsed = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


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
    """A loss or a metric, to four significant digits; in full from 1,000 to a billion."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
