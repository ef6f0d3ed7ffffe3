"""`tpujob doctor` and `tpujob quota`: whether jobs can run in the context, and how much hardware they may have."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from tpujob.cli.backend import current_settings, local_stack
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json, Yes
from tpujob.cli.output import say, say_json, screen
from tpujob.errors import BadRequest, Transient


def doctor(
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Try a slice of one host, and keep what the cloud answers."),
    ] = False,
    type: Annotated[
        str, typer.Option(metavar="TYPE", help="--probe: of the slice; the cheapest if left out.")
    ] = "",
    zone: Annotated[
        str, typer.Option(metavar="ZONE", help="--probe: of the slice; the cheapest if left out.")
    ] = "",
    cap: Annotated[
        float, typer.Option(min=0.01, metavar="USD", help="--probe: what it may cost at most.")
    ] = 1.0,
    to: Annotated[
        str, typer.Option(metavar="FOLDER", help="--probe: where the answers are kept.")
    ] = "",
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="PROBE", help="--probe: lost-node, with two slices and some risk."),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Check that jobs can run, and say what to do where they cannot."""
    if probe:
        from tpujob.cli.commands.probing import probe as run_probes
        from tpujob.wiring.probe import Wanted

        return run_probes(
            Wanted(type, zone, cap, also=tuple(also or ())), to, yes=yes, as_json=as_json
        )
    if type or zone or to or also or yes:
        raise BadRequest(
            "--type, --zone, --to, --also and --yes are for --probe", hint="tpujob doctor --probe"
        )
    from tpujob.doctor.findings import Severity, worst
    from tpujob.wiring import doctor

    now = current_settings()
    found = doctor.findings(now)
    if as_json:
        say_json([asdict(one) for one in found])
    else:
        from tpujob.cli.render.doctor.findings import doctor_page

        on = screen()
        say(doctor_page(now.context, found, on.columns, color=on.color))
    return {Severity.FAIL: FOUND, Severity.UNKNOWN: Transient.exit_code}.get(worst(found), 0)


def quota(
    everywhere: Annotated[
        bool, typer.Option("--all", help="In every zone, not only those of the context.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show limits, use and grants of each type of TPU, by zone."""
    from tpujob.wiring import doctor

    now = current_settings()
    if now.local:
        local_stack()
    found = doctor.quotas(now, everywhere=everywhere)
    if as_json:
        say_json(_as_json(found))
        return
    from tpujob.cli.render.doctor.findings import quota_page

    on = screen()
    say(quota_page(found, on.columns, color=on.color, everywhere=everywhere))


def _as_json(found: Any) -> dict[str, Any]:
    """A limit that does not exist is null, and so is an unknown use."""
    from tpujob.doctor.quota import allowance_view

    return {
        "of": found.of,
        "rows": [allowance_view(row) for row in found.rows],
        "others": [
            {"metric": one.metric, "scope": one.scope, "place": one.place, "limit": one.limit}
            for one in found.others
        ],
        "notes": list(found.notes),
        "stock": [asdict(one) for one in found.stock],
    }
