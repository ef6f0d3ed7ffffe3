"""`tpujob cost estimate --compare`: what its options mean, and the answer on the screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.output import say, screen
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import CompareAsked, CompareView

_LETTERS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def asked(
    *, steps: int | None, tokens: str, samples: str, types: str, zones: str, speeds: Sequence[str]
) -> CompareAsked:
    """Raises BadRequest for what cannot be read."""
    work = {"steps": "" if steps is None else str(steps), "tokens": tokens, "samples": samples}
    given = {unit: text for unit, text in work.items() if text}
    if len(given) > 1:
        raise BadRequest(f"give one of {' and '.join(f'--{unit}' for unit in given)}")
    found: CompareAsked = {}
    if "tokens" in given:
        found["unit"] = "tokens"
    elif "samples" in given:
        found["unit"] = "samples"
    for unit, text in given.items():
        found["amount"] = amount(text, f"--{unit}")
    for name, text in (("types", types), ("zones", zones)):
        named = [word.strip() for word in text.split(",") if word.strip()]
        if named:
            found[name] = named
    if speeds:
        found["throughput"] = dict(_speed(text) for text in speeds)
    return found


def amount(text: str, option: str) -> float:
    """`10B`, `1.5M`, `20k`, `300` as a number. Raises BadRequest."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKMGBT]?)", text.replace(",", ""))
    if match is None:
        raise BadRequest(
            f"{option}: {text[:40]!r} is no number", hint="such as 300, 20k, 1.5M or 10B"
        )
    return float(match[1]) * _LETTERS[match[2]]


def time(text: str, option: str) -> float:
    """`90s`, `30m`, `1h30m` in seconds. Raises BadRequest."""
    from tpujob.domain.spec.fields import time_span

    try:
        return float(time_span("365d")(text))
    except ValueError as error:
        raise BadRequest(f"{option} {error}") from None


def _speed(text: str) -> tuple[str, float]:
    type, equals, value = text.partition("=")
    if not equals or not type:
        raise BadRequest(
            f"--throughput: {text[:40]!r} is no speed",
            hint="such as v5e-64=120k, in units a second",
        )
    return type, amount(value, "--throughput")


def show(found: CompareView) -> None:
    from tpujob.cli.render.cost.compare import compare_page

    on = screen()
    say(compare_page(found, on.columns, color=on.color))
