"""The commands of `tpujob emulator` for zones, quotas and the two APIs."""

from typing import Annotated

import typer

from tpujob.cli.commands.emulator import options as given
from tpujob.cli.commands.emulator.options import Hang, Lasts, Off, Type, Zone, duration
from tpujob.cli.output import say


def stockout(
    zone: Zone,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as v4; default: all.")] = "",
    lasts: Lasts = None,
    off: Off = False,
    fail: Annotated[
        bool, typer.Option("--fail", help="Fail requests at once instead of queueing them.")
    ] = False,
) -> None:
    """Let a zone run out of capacity for new slices."""
    given.client().do("stockout", zone=zone, type=type, for_s=lasts, off=off, fail=fail)
    what = type or "any type"
    say(f"{zone}: {'capacity' if off else 'no more capacity'} for {what}{' again' if off else ''}")


def quota(
    zone: Zone,
    type: Type,
    limit: Annotated[
        str,
        typer.Argument(metavar="LIMIT", help="Cores (v5e, v6e: chips), or none."),
    ],
    pricing: Annotated[
        str, typer.Option(metavar="[spot|on-demand|reserved]", help="Default: all.")
    ] = "",
) -> None:
    """Limit how much of a generation may be held in a zone."""
    if not limit.isdecimal() and limit != "none":
        raise typer.BadParameter(f"{limit!r} is neither a number nor none", param_hint="LIMIT")
    most = int(limit) if limit != "none" else None
    given.client().do("quota", zone=zone, type=type, limit=most, pricing=pricing)
    say(f"{zone}: quota of {type} is {limit}")


def api_error(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="Such as CreateQueuedResource; *: any.")
    ],
    code: Annotated[str, typer.Argument(metavar="CODE", help="gRPC status; OK: delay only.")],
    count: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of calls; 0 removes the fault.")
    ] = 1,
    after: Annotated[
        bool, typer.Option("--after", help="Fail after the call took effect.")
    ] = False,
    hang: Hang = 0.0,
    message: Annotated[str, typer.Option(metavar="TEXT", help="The error message.")] = "",
) -> None:
    """Fail or delay the next calls of the TPU API."""
    fault = {"count": count, "after": after, "hang_s": hang, "message": message}
    given.client().do("api-error", method=method, code=code, **fault)
    say(f"{method}: {_next(count, 'call')} {code.upper()}")


def storage_error(
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of requests.")] = 1,
    status: Annotated[
        int, typer.Option(help="503, 429, 403 or 404; 200: delay only.", metavar="CODE")
    ] = 503,
    method: Annotated[
        str, typer.Option(metavar="METHOD", help="GET, LIST, POST, PUT, PATCH or DELETE; *: any.")
    ] = "*",
    hang: Hang = 0.0,
    path: Annotated[
        str, typer.Option(help="Only names that contain this text.", metavar="TEXT")
    ] = "",
    after: Annotated[
        bool, typer.Option("--after", help="Fail after the request took effect.")
    ] = False,
    off: Off = False,
) -> None:
    """Fail or delay the next requests of Cloud Storage."""
    fault = {"status": status, "method": method, "count": count, "after": after, "hang_s": hang}
    given.client().do("storage-error", **fault, path=path, off=off)
    of = "" if method == "*" else f" ({method.upper()})"
    answers = f"{_next(count, 'request', of)} {status}"
    say(f"Cloud Storage: {'no request is set to fail' if off else answers}")


def _next(count: int, what: str, of: str = "") -> str:
    if count == 0:
        return f"no {what} is set to answer"
    return f"the next {what}{of} answers" if count == 1 else f"the next {count} {what}s{of} answer"


def api_bug(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="late-conflict: a request succeeds, but returns 409. late-conflict-operation: its operation ends with "
            "409. no-labels: responses omit labels. wedge: a forced deletion of a suspending slice never ends.",
        ),
    ],
    off: Off = False,
) -> None:
    """Switch on a rare behaviour of Google's API."""
    given.client().do("api-bug", name=name, off=off)
    say(f"{name} is {'off' if off else 'on'}")


def max_run(
    lasts: Annotated[
        float,
        typer.Argument(
            parser=duration,
            metavar="DURATION",
            help="Such as 30m; 0: no limit.",
            show_default=False,
        ),
    ],
) -> None:
    """Suspend slices some time after they became ready.

    For slices that become ready from now on."""
    given.client().do("max-run", for_s=lasts)
    say(
        f"slices are suspended {lasts:g} s after they are ready"
        if lasts
        else "no slice is suspended for its age"
    )


def unreachable(zone: Zone, off: Off = False) -> None:
    """Report a zone as unreachable in lists."""
    given.client().do("unreachable", zone=zone, off=off)
    say(f"{zone}: lists {'reach it again' if off else 'do not reach it'}")


def offer(
    zone: Annotated[str, typer.Argument(metavar="ZONE", help="Such as us-central2-x.")],
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as v6e-512, or v9x-16.")],
) -> None:
    """Let a zone offer a type that tpujob does not know."""
    given.client().do("offer", zone=zone, type=type)
    say(f"{zone} offers {type}")


def add(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="network, subnetwork, service-account, reservation or disk."
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name in the context.")],
    off: Annotated[bool, typer.Option("--off", help="Remove it.")] = False,
) -> None:
    """Add a network, an account, a reservation or a disk.

    It lasts until the emulator stops."""
    given.client().do("add", kind=kind, name=name, off=off)
    say(f"the {kind} {name} {'is gone' if off else 'exists'}")


COMMANDS = (
    stockout, quota, api_error, storage_error, api_bug, max_run, offer, unreachable, add,
)  # fmt: skip
