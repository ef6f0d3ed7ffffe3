"""`tpujob emulator ...`: inject faults into the local Cloud TPU, and show its state.

Here are the faults of the whole cloud; those of slices and hosts are in `slices.py`, what the service does only at
times in `quirks.py`, plans of faults in `plans.py`.
"""

import json
import shlex
from typing import Annotated

import typer

from tpujob.cli.commands.emulator import HELP, plans, quirks, slices
from tpujob.cli.commands.emulator import options as given
from tpujob.cli.commands.emulator.options import Hang, Lasts, Type, Zone, lasting
from tpujob.cli.options import Json
from tpujob.cli.output import note, say, say_json, say_page

app = typer.Typer(no_args_is_help=True, help=HELP)


@app.command()
def status(as_json: Json = False) -> None:
    """Show slices, hosts, stock and the faults in force."""
    from tpujob.cli.render.emulator import status_page

    say_page(given.client().status(), status_page, as_json)


@app.command()
def env(
    project: Annotated[
        str, typer.Option(metavar="PROJECT", help="Of gcloud; default: the context's.")
    ] = "",
    off: Annotated[bool, typer.Option("--off", help="Print what undoes it.")] = False,
    as_json: Json = False,
) -> None:
    """Print what to export for gcloud and Python clients.

    eval "$(tpujob emulator env)" leads gcloud, Google's Python clients and the contexts of tpujob
    in this terminal to the emulator. Its addresses are others after each start."""
    if off:
        from tpujob.emulator import environment

        say(f"unset {' '.join(environment.names())}")
        return
    variables = given.shell_variables(project)
    if as_json:
        say_json(variables)
        return
    say("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


@app.command()
def profile(
    name: Annotated[
        str,
        typer.Argument(
            metavar="default|bare",
            help="bare: what a TPU VM has. Python 3.10 without pip and JAX, no `python`, packages being upgraded.",
        ),
    ],
) -> None:
    """Say what is installed on new hosts.

    On those of slices that come up from now on."""
    found = given.client().do("profile", name=name)
    say(f"hosts that come up from now on are {name}")
    for one in found["shortcomings"]:
        note(f"tpujob: {one}")


for command in slices.COMMANDS:
    app.command()(command)


@app.command()
def stockout(
    zone: Zone,
    type: Annotated[
        str, typer.Argument(metavar="TYPE", help="Such as v4; default: every type.")
    ] = "",
    lasts: Lasts = None,
    off: Annotated[bool, typer.Option("--off", help="There is capacity again.")] = False,
    fail: Annotated[
        bool, typer.Option("--fail", help="Requests fail at once, instead of waiting in the queue.")
    ] = False,
) -> None:
    """Let a zone run out of capacity for new slices."""
    given.client().do("stockout", zone=zone, type=type, for_s=lasts, off=off, fail=fail)
    what = type or "any type"
    say(f"{zone}: {'capacity' if off else 'no more capacity'} for {what}{' again' if off else ''}")


@app.command()
def quota(
    zone: Zone,
    type: Type,
    limit: Annotated[
        str,
        typer.Argument(
            metavar="LIMIT", help="In cores (v5e, v6e: chips), as in v4-16; none: no limit."
        ),
    ],
    pricing: Annotated[
        str, typer.Option(metavar="[spot|on-demand|reserved]", help="Default: each of them.")
    ] = "",
) -> None:
    """Limit how much of a generation may be held in a zone."""
    if not limit.isdecimal() and limit != "none":
        raise typer.BadParameter(f"{limit!r} is neither a number nor none", param_hint="LIMIT")
    most = int(limit) if limit != "none" else None
    given.client().do("quota", zone=zone, type=type, limit=most, pricing=pricing)
    say(f"{zone}: quota of {type} is {limit}")


@app.command()
def api_error(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="Such as CreateQueuedResource; *: any.")
    ],
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="Such as UNAVAILABLE; OK: it only hangs.")
    ],
    count: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of calls; 0 removes the fault.")
    ] = 1,
    after: Annotated[
        bool, typer.Option("--after", help="Fail after the call took effect, not before.")
    ] = False,
    hang: Hang = 0.0,
    message: Annotated[str, typer.Option(metavar="TEXT", help="What Google would say.")] = "",
) -> None:
    """Let the next calls of the API fail, or hang."""
    fault = {"count": count, "after": after, "hang_s": hang, "message": message}
    given.client().do("api-error", method=method, code=code, **fault)
    say(f"{method}: {_next(count, 'call')} {code.upper()}")


@app.command()
def storage_error(
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of requests.")] = 1,
    status: Annotated[
        int, typer.Option(help="503, 429, 403 or 404; 200: it only hangs.", metavar="CODE")
    ] = 503,
    method: Annotated[
        str, typer.Option(metavar="METHOD", help="GET, LIST, POST, PUT, PATCH or DELETE; *: any.")
    ] = "*",
    hang: Hang = 0.0,
    path: Annotated[
        str, typer.Option(help="Only where bucket and name contain this text.", metavar="TEXT")
    ] = "",
    after: Annotated[
        bool, typer.Option("--after", help="Fail after the request took effect, not before.")
    ] = False,
    off: Annotated[bool, typer.Option("--off", help="Remove all of these faults.")] = False,
) -> None:
    """Let the next requests of Cloud Storage fail, or hang."""
    fault = {"status": status, "method": method, "count": count, "after": after, "hang_s": hang}
    given.client().do("storage-error", **fault, path=path, off=off)
    of = "" if method == "*" else f" ({method.upper()})"
    answers = f"{_next(count, 'request', of)} {status}"
    say(f"Cloud Storage: {'no request is set to fail' if off else answers}")


def _next(count: int, what: str, of: str = "") -> str:
    if count == 0:
        return f"no {what} is set to answer"
    return f"the next {what}{of} answers" if count == 1 else f"the next {count} {what}s{of} answer"


for command in quirks.COMMANDS:
    app.command()(command)


@app.command()
def settings(
    create: Annotated[float | None, lasting("Time to create a slice.")] = None,
    delete: Annotated[float | None, lasting("Time to delete a slice.")] = None,
    suspend: Annotated[float | None, lasting("Time to suspend one that was preempted.")] = None,
    list_lag: Annotated[float | None, lasting("Time until lists show either.")] = None,
) -> None:
    """Show or change how long the cloud takes, in seconds."""
    wanted = {"create": create, "delete": delete, "suspend": suspend, "list_lag": list_lag}
    all_of_it = given.client().do("settings", **{k: v for k, v in wanted.items() if v is not None})
    say(json.dumps(all_of_it))


for command in plans.COMMANDS:
    app.command()(command)
