"""`tpujob emulator ...`: make things go wrong on the local Cloud TPU, and see how it stands."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.output import say

if TYPE_CHECKING:
    from tpujob.emulator.client import EmulatorClient

app = typer.Typer(
    no_args_is_help=True, help="Make things go wrong on the local Cloud TPU, and see how it stands."
)

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """Seconds of `45`, `30s`, `10m`, `1.5h`, `2d`. Raises typer.BadParameter."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration; write it as 30s, 10m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


Target = Annotated[
    str, typer.Argument(help="A job, or a slice's name; left out: the only ready slice.")
]
Duration = Annotated[float, typer.Option(parser=duration, metavar="DURATION")]


def _slice_or_id(target: str) -> str:
    """What the emulator knows: slices and job ids. A job's name is the backend's to resolve."""
    if not target or target.isdigit() or re.fullmatch(r"tj-\d+-\d+", target):
        return target
    from tpujob.cli.backend import connect

    return connect().get(target)["id"]


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show slices, hosts, stock and the faults in force."""
    found = _client().status()
    if as_json:
        say(json.dumps(found, indent=2))
        return
    from tpujob.cli.emulator_page import status_page

    say(status_page(found, shutil.get_terminal_size().columns))


@app.command()
def preempt(target: Target = "", notice: Duration = 30.0) -> None:
    """Preempt a slice: SIGTERM now, everything gone after the notice."""
    done = _client().preempt(_slice_or_id(target), notice_s=notice)
    say(f"{done['slice']} is being preempted: its hosts are gone in {notice:g} s")


@app.command()
def maintain(target: Target = "", window: Duration = 60.0) -> None:
    """Announce maintenance to the hosts of a slice, for a while."""
    done = _client().maintain(_slice_or_id(target), window_s=window)
    say(f"{done['slice']}: maintenance is announced for {window:g} s")


@app.command()
def slow(
    target: Target = "",
    host: Annotated[int, typer.Option(min=0, help="Its number in the slice.")] = 0,
    factor: Annotated[float, typer.Option(min=1, help="1: as fast as before.")] = 10.0,
) -> None:
    """Make one host of a slice slower."""
    done = _client().slow(_slice_or_id(target), host=host, factor=factor)
    how = "as fast as before" if factor == 1 else f"{factor:g} times slower"
    say(f"{done['slice']}: host {host} is {how}")


@app.command()
def stockout(
    zone: str,
    type: Annotated[str, typer.Argument(help="Such as v4; left out: every type.")] = "",
    lasts: Annotated[
        float | None,
        typer.Option("--for", parser=duration, metavar="DURATION", help="Default: until --off."),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="There is capacity again.")] = False,
    fail: Annotated[
        bool, typer.Option("--fail", help="Requests fail at once, instead of waiting in the queue.")
    ] = False,
) -> None:
    """Let a zone run out of capacity for new slices."""
    _client().stockout(zone, type, for_s=lasts, off=off, fail=fail)
    what = type or "any type"
    say(f"{zone}: {'capacity' if off else 'no more capacity'} for {what}{' again' if off else ''}")


@app.command()
def quota(
    zone: str,
    type: Annotated[str, typer.Argument(help="Such as v4 or v4-16: the generation counts.")],
    limit: Annotated[
        str, typer.Argument(help="In cores (v5e, v6e: chips), as in v4-16; none: no limit.")
    ],
    pricing: Annotated[
        str, typer.Option(help="spot, on-demand or reserved; left out: each of them.")
    ] = "",
) -> None:
    """Limit what may be held of a generation in a zone."""
    if not limit.isdecimal() and limit != "none":
        raise typer.BadParameter(f"{limit!r} is neither a number nor none", param_hint="LIMIT")
    _client().quota(zone, type, int(limit) if limit != "none" else None, pricing=pricing)
    say(f"{zone}: quota of {type} is {limit}")


@app.command()
def api_error(
    method: Annotated[str, typer.Argument(help="Such as CreateQueuedResource; *: any.")],
    code: Annotated[str, typer.Argument(help="Such as UNAVAILABLE; OK: it only hangs.")],
    count: Annotated[int, typer.Option(min=0, help="How many calls; 0: no more.")] = 1,
    after: Annotated[
        bool, typer.Option("--after", help="Fail after the call took effect, not before.")
    ] = False,
    hang: Duration = 0.0,
) -> None:
    """Let the next calls of the API fail, or hang."""
    when = "post" if after else "pre"
    _client().api_error(method, code, count=count, when=when, delay_s=hang)
    say(f"{method}: the next {count} calls answer {code.upper()}")


@app.command()
def break_host(
    physical: Annotated[str, typer.Argument(help="Such as us-central2-b-h003; see status.")],
    fault: Annotated[
        str, typer.Option(help="What a program that lands there gets as TPUJOB_FAULT.")
    ] = "nan:step=20,device=0",
    mend: Annotated[bool, typer.Option("--mend", help="Make it good again.")] = False,
) -> None:
    """Make a physical host bad, for slices that land on it from now on."""
    _client().break_host(physical, "" if mend else fault)
    say(f"{physical} is {'good again' if mend else 'bad'}")


@app.command()
def settings(
    create: Annotated[float | None, typer.Option(parser=duration, metavar="DURATION")] = None,
    delete: Annotated[float | None, typer.Option(parser=duration, metavar="DURATION")] = None,
    list_lag: Annotated[float | None, typer.Option(parser=duration, metavar="DURATION")] = None,
) -> None:
    """Show or change how long the cloud takes: to create, to delete, to show either in lists."""
    given = {"create": create, "delete": delete, "list_lag": list_lag}
    all_of_it = _client().settings(**{k: v for k, v in given.items() if v is not None})
    say(json.dumps(all_of_it))


def _client() -> EmulatorClient:
    from tpujob import settings as configuration
    from tpujob.emulator.client import EmulatorClient

    return EmulatorClient.from_ready(configuration.load().emulator_ready)
