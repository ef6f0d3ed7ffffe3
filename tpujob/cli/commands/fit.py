"""`tpujob fit`: compiles the training step of any program for TPU slices, without a TPU and without a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tpujob.cli.backend import current_settings, running
from tpujob.cli.errors import DOES_NOT_FIT
from tpujob.cli.options import Json, argument, duration, flag, option
from tpujob.cli.output import get_screen, say, say_json
from tpujob.cli.render.check_page import CheckedTarget, FinishBy, check_page
from tpujob.errors import BadRequest, TpujobError

if TYPE_CHECKING:
    from tpujob.domain.hardware.prices import PriceList
    from tpujob.submit.compile_check import Reached, TargetFinding

Variants = Annotated[
    list[str] | None,
    option(
        "NAME=VALUE",
        "Also compile with this argument or setting, or mesh=AXES, and say what it gives; repeatable.",
        "--with",
    ),
]
Interpreter = Annotated[
    str, option("PATH", "Interpreter of the program. Default: the one of tpujob.", "--python")
]


def fit(
    function: Annotated[
        str,
        argument(
            "FUNCTION", "FILE.py:NAME or MODULE:NAME; it returns the jitted step and its arguments."
        ),
    ],
    types: Annotated[
        str, option("TYPE,...", "Slices, such as v4-128,v5e-64; 2xv4-16 is two slices.", "--type")
    ],
    steps: Annotated[str, option("N", "Steps of the training. Default: 1000.")] = "",
    tokens: Annotated[str, option("N", "The same in tokens, such as 10B.")] = "",
    by: Annotated[
        str,
        option("TIME", "Name the cheapest slice that ends by then: Friday, 2026-12-04T18:00, 36h."),
    ] = "",
    mesh: Annotated[
        str, option("AXES", "Mesh that the function gets. Default: data=SLICES,fsdp=-1.")
    ] = "",
    variants: Variants = None,
    python: Interpreter = "",
    zone: Annotated[
        str, option("ZONE", "Zone of the prices. Default: one that has the type.")
    ] = "",
    on_demand: Annotated[bool, flag("Not spot.", "--on-demand")] = False,
    patience: Annotated[int, option("S", "CPU seconds for each compilation.", min=1)] = 1200,
    as_json: Json = False,
) -> int:
    """Compile any training step for TPU slices: does it fit, how fast, for how much."""
    from tpujob.cli.commands.cost.estimate import amount
    from tpujob.submit import compile_check

    place, _, name = function.rpartition(":")
    if not place or not name.isidentifier():
        raise BadRequest(
            f"{function[:60]!r} names no function",
            hint="FILE.py:NAME or MODULE:NAME, such as train.py:step.",
        )
    if steps and tokens:
        raise BadRequest("give one of --steps and --tokens")
    deadline = _deadline(by, datetime.now().astimezone()) if by else None
    unit = "tokens" if tokens else "steps"
    options = compile_check.CheckOptions(
        amount(tokens or steps or "1000", f"--{unit}"),
        unit,
        changes(variants),
        patience,
        reached_here(),
    )
    checked = compile_check.CheckedFunction(function, str(Path.cwd()), python, mesh)
    names = [part.strip() for part in types.split(",") if part.strip()]
    findings = compile_check.check_function(checked, names, options)
    pricing, zones = "on-demand" if on_demand else "spot", (zone,) if zone else ()
    targets = [
        with_price(finding, wanted(finding["target"], zones, pricing)) for finding in findings
    ]
    return print_checked(function, targets, deadline, as_json=as_json)


def changes(texts: Sequence[str] | None) -> tuple[dict[str, Any], ...]:
    """Return the arguments in each text, such as `remat=full layers=2`. Raise BadRequest."""
    variants: list[dict[str, Any]] = []
    for text in texts or ():
        pairs = [word.partition("=") for word in text.split()]
        if not pairs or any(not name.isidentifier() or not value for name, _, value in pairs):
            raise BadRequest(
                f"--with {text[:40]!r} is not NAME=VALUE", hint="such as remat=full or mesh=fsdp=-1"
            )
        variants.append({name: _value(value) for name, _, value in pairs})
    return tuple(variants)


def _value(text: str) -> Any:
    """Return a number, true or false as such, anything else as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (int, float)) else text


def reached_here() -> Reached:
    """Return the part of the peak that the jobs of the context reached, by generation; nothing where no backend runs or
    it does not answer. Starts nothing."""
    try:
        api = running()
        return (
            {}
            if api is None
            else {row["generation"]: (row["least"], row["most"]) for row in api.reached()}
        )
    except TpujobError:
        return {}


# Prices --------------------------------------------------------------------------------------------------------------


class SlicesWanted(NamedTuple):
    """The slices of a target, and the terms of their price."""

    type: str
    slices: int
    zones: Sequence[str]  #: empty: all that have the type
    pricing: str


def wanted(target: str, zones: Sequence[str], pricing: str) -> SlicesWanted:
    """Return the slices of a target such as `2xv4-16`."""
    from tpujob.domain.hardware import accelerators

    number, several, type = target.partition("x")
    if not several or not number.isdigit():
        number, type = "1", target
    return SlicesWanted(accelerators.canonical(type), int(number), zones, pricing)


def with_price(finding: TargetFinding, slices: SlicesWanted) -> CheckedTarget:
    """Return the finding with a zone of the type and the price of the slices there, in USD an hour: the first zone with
    a known price."""
    from tpujob.domain.hardware import accelerators

    prices = _prices()
    zones = [zone for zone in slices.zones if accelerators.may_have(slices.type, zone)]
    for zone in zones or accelerators.zones(slices.type):
        usd = prices.usd_per_hour(slices.type, zone, slices.pricing, slices.slices)
        if usd is not None:
            return CheckedTarget(finding, zone, usd)
    return CheckedTarget(finding, next(iter(zones), ""), None)


def _prices() -> PriceList:
    from tpujob.config import context, prices
    from tpujob.domain.hardware.prices import LIST

    settings = current_settings()
    if settings.local:
        return LIST
    return prices.in_force(settings, context.current(settings), datetime.now(UTC).date())


def print_checked(
    name: str,
    targets: Sequence[CheckedTarget],
    deadline: FinishBy | None = None,
    *,
    as_json: bool,
) -> int:
    """Print the findings, and return the exit code: 0 if the step fits every target."""
    if as_json:
        say_json([{**t.finding, "zone": t.zone, "usd_per_hour": t.usd_per_hour} for t in targets])
    else:
        screen = get_screen()
        say(check_page(name, targets, screen.columns, deadline=deadline, color=screen.color))
    return 0 if all(target.finding["fit"] == "yes" for target in targets) else DOES_NOT_FIT


# Deadlines -----------------------------------------------------------------------------------------------------------

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _deadline(text: str, now: datetime) -> FinishBy:
    at = moment(text, now)
    if at <= now:
        raise BadRequest(f"--by {text}: {at:%Y-%m-%d %H:%M} has passed")
    return FinishBy(at, (at - now).total_seconds() / 3600)


def moment(text: str, now: datetime) -> datetime:
    """Return the time that a text names: a weekday, which is its end in the zone of `now`, perhaps with a time of day;
    an ISO date or time, in that zone unless it says one; or a duration from `now`. Raises BadRequest."""
    day, _, hour = text.strip().partition(" ")
    matches = [
        index for index, name in enumerate(_DAYS) if len(day) > 2 and name.startswith(day.lower())
    ]
    try:
        if matches:
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            ahead = midnight + timedelta(days=(matches[0] - now.weekday()) % 7)
            if not hour:
                return ahead + timedelta(days=1)
            at = datetime.combine(ahead, datetime.strptime(hour, "%H:%M").time(), now.tzinfo)
            return at if at > now else at + timedelta(days=7)
        if text[:4].isdigit() and "-" in text:
            at = datetime.fromisoformat(text)
            if "T" not in text and " " not in text:
                at += timedelta(days=1)  # the whole day
            return at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
        return now + timedelta(seconds=duration(text))
    except (ValueError, OverflowError, typer.BadParameter):
        raise BadRequest(
            f"--by: {text[:40]!r} is not a time",
            hint="Friday, 'Friday 18:00', 2026-12-04T18:00 or 36h.",
        ) from None
