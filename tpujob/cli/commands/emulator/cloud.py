"""The commands of `tpujob emulator` for zones, quotas and the two APIs."""

from typing import Annotated

import typer

from tpujob.cli.commands.emulator import options as given
from tpujob.cli.commands.emulator.options import Hang, Lasts, Off, Type, Zone, duration
from tpujob.cli.options import argument, flag, option
from tpujob.cli.output import say


def stockout(
    zone: Zone,
    type: Annotated[str, argument("TYPE", "Such as v4; default: all.")] = "",
    lasts: Lasts = None,
    off: Off = False,
    fail: Annotated[
        bool, flag("Fail requests at once instead of queueing them.", "--fail")
    ] = False,
) -> None:
    """Let a zone run out of capacity for new slices."""
    given.client().do("stockout", zone=zone, type=type, for_s=lasts, off=off, fail=fail)
    what = type or "any type"
    say(f"{zone}: {'capacity' if off else 'no more capacity'} for {what}{' again' if off else ''}")


def quota(
    zone: Zone,
    type: Type,
    limit: Annotated[str, argument("LIMIT", "Cores (v5e, v6e: chips), or none.")],
    pricing: Annotated[str, option("[spot|on-demand|reserved]", "Default: all.")] = "",
) -> None:
    """Limit how much of a generation may be held in a zone."""
    if not limit.isdecimal() and limit != "none":
        raise typer.BadParameter(f"{limit!r} is neither a number nor none", param_hint="LIMIT")
    most = int(limit) if limit != "none" else None
    given.client().do("quota", zone=zone, type=type, limit=most, pricing=pricing)
    say(f"{zone}: quota of {type} is {limit}")


def api_error(
    method: Annotated[str, argument("METHOD", "Such as CreateQueuedResource; *: any.")],
    code: Annotated[str, argument("CODE", "gRPC status; OK: delay only.")],
    count: Annotated[int, option("N", "Number of calls; 0 removes the fault.", min=0)] = 1,
    after: Annotated[bool, flag("Fail after the call took effect.", "--after")] = False,
    hang: Hang = 0.0,
    message: Annotated[str, option("TEXT", "The error message.")] = "",
) -> None:
    """Fail or delay the next calls of the TPU API."""
    fault = {"count": count, "after": after, "hang_s": hang, "message": message}
    given.client().do("api-error", method=method, code=code, **fault)
    say(f"{method}: {_next(count, 'call')} {code.upper()}")


def storage_error(
    count: Annotated[int, option("N", "Number of requests.", min=1)] = 1,
    status: Annotated[int, option("CODE", "503, 429, 403 or 404; 200: delay only.")] = 503,
    method: Annotated[
        str, option("METHOD", "GET, LIST, POST, PUT, PATCH or DELETE; *: any.")
    ] = "*",
    hang: Hang = 0.0,
    path: Annotated[str, option("TEXT", "Only names that contain this text.")] = "",
    after: Annotated[bool, flag("Fail after the request took effect.", "--after")] = False,
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
        argument(
            "NAME",
            "late-conflict: a request succeeds, but returns 409. late-conflict-operation: its operation ends with "
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
        argument("DURATION", "Such as 30m; 0: no limit.", parser=duration, show_default=False),
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
    zone: Annotated[str, argument("ZONE", "Such as us-central2-x.")],
    type: Annotated[str, argument("TYPE", "Such as v6e-512, or v9x-16.")],
) -> None:
    """Let a zone offer a type that tpujob does not know."""
    given.client().do("offer", zone=zone, type=type)
    say(f"{zone} offers {type}")


def add(
    kind: Annotated[
        str, argument("KIND", "network, subnetwork, service-account, reservation or disk.")
    ],
    name: Annotated[str, argument("NAME", "Name in the context.")],
    off: Annotated[bool, flag("Remove it.", "--off")] = False,
) -> None:
    """Add a network, an account, a reservation or a disk.

    It lasts until the emulator stops."""
    given.client().do("add", kind=kind, name=name, off=off)
    say(f"the {kind} {name} {'is gone' if off else 'exists'}")


COMMANDS = (
    stockout, quota, api_error, storage_error, api_bug, max_run, offer, unreachable, add,
)  # fmt: skip
