"""The environment of the HTML templates: everything is escaped, and text of strangers is made harmless. Pure."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tpujob.api import JobFacts
from tpujob.domain import text
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.text import harmless

FOLDER = Path(__file__).parents[1] / "templates"


def environment(asset: Callable[[str], Any]) -> Environment:
    """Return the environment of templates. `asset` returns a file of `web/static/` by its name."""
    made: Any = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless_text,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["asset"] = asset
    made.tests["group"] = is_group
    made.filters |= {
        "age": text.age,
        "span": text.span,
        "usd": text.usd,
        "rate": text.rate,
        "number": text.number,
        "seconds": text.seconds,
        "day": day,
        "day_of": day_of,
        "value": value,
        "sentence": sentence,
        "n": "{:,}".format,
        "terms": find_pricing,
    }
    return cast(Environment, made)


def _harmless_text(value: object) -> object:
    """Return the value; text without characters that hide other characters or reverse their direction."""
    return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def is_group(job: JobFacts) -> bool:
    """Return whether the job is an array or a sweep, not an element."""
    return bool(job.get("group_size")) and not job.get("group")


def value(of: object) -> str:
    """Return a value of a spec as text; a list as in a job file, `[a, b]`."""
    if isinstance(of, list):
        return f"[{', '.join(map(value, cast('list[object]', of)))}]"
    return of if isinstance(of, str) else json.dumps(of, ensure_ascii=False)


def sentence(text: str) -> str:
    """Return the text with a capital at its beginning and a full stop at its end."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!", "`")) else ".")


def day(at: str) -> str:
    """Return a view's time in full: `22 Nov 2026, 18:25:06 UTC`."""
    since = text.seconds(at)
    return "" if since is None else day_of(since)


def day_of(at: float) -> str:
    """Return seconds since the epoch in the form of `day`."""
    return datetime.fromtimestamp(at, UTC).strftime("%-d %b %Y, %H:%M:%S UTC")
