"""The commands of an administrator: suspected machines, orphaned slices, inconsistent records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import connect, say_where
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json, complete_host
from tpujob.cli.output import note, say, say_json, say_page
from tpujob.domain.text import clean
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import JobsApi

hosts = typer.Typer(
    invoke_without_command=True, help="Show machines that are suspected of wrong numbers; pin them."
)

Machine = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="As `tpujob hosts` and `tpujob show JOB` show it.",
        autocompletion=complete_host,
    ),
]


@hosts.callback()
def show_hosts(context: typer.Context, as_json: Json = False) -> None:
    """Show machines that are suspected of wrong numbers; pin them."""
    if context.invoked_subcommand:
        return
    from tpujob.cli.render.admin import hosts_table

    say_page(connect().hosts(), hosts_table, as_json)


@hosts.command()
def pin(
    name: Machine,
    good: Annotated[bool, typer.Option("--good", help="Always let programs run on it.")] = False,
    bad: Annotated[bool, typer.Option("--bad", help="Never let programs run on it.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Let its score decide again.")] = False,
    as_json: Json = False,
) -> None:
    """Call a machine good or bad, whatever its score."""
    if good + bad + off != 1:
        raise BadRequest(
            "give exactly one of --good, --bad and --off", hint=f"tpujob hosts pin {name} --bad"
        )
    api = connect()
    found = api.pin_host(_whole(api, name), "good" if good else "bad" if bad else "")
    from tpujob.cli.render.admin import host_text

    say_json(found) if as_json else say(host_text(found))


@hosts.command()
def clear(name: Machine) -> None:
    """Forget a machine's score, pin and reasons."""
    api = connect()
    whole = _whole(api, name)
    api.clear_host(whole)
    say(f"{clean(whole)}: score, pin and reasons are forgotten.")


def _whole(api: JobsApi, name: str) -> str:
    """The whole name of a machine that a table cut at `…`; any other name as it is."""
    head, cut, tail = name.partition("…")
    if not cut:
        return name
    known = [h["physical"] for h in api.hosts()]
    found = [k for k in known if k.startswith(head) and k.endswith(tail)]
    if len(found) != 1:
        raise BadRequest(
            f"{len(found)} machines match {name}", hint="`tpujob hosts --json` shows whole names."
        )
    return found[0]


def leaks(as_json: Json = False) -> int:
    """List slices in the cloud that no job claims, with age and price."""
    swept = connect().leaks()
    found, unlisted = [*swept["deleted"], *swept["kept"]], swept.get("unlisted", {})
    if as_json or found or not unlisted:
        from tpujob.cli.render.admin import leaks_table

        say_page(found, leaks_table, as_json)
    for what, why in unlisted.items():
        note(f"{clean(what)} could not be listed: {clean(why)}")
    return FOUND if found or unlisted else 0


def sweep(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Delete what no job claims.

    Slices and requests in every zone of the context, and keys of slices that are gone."""
    from tpujob.cli.render.admin import swept_page

    say_where()
    swept = connect().sweep(dry_run=dry_run)
    say_page(swept, swept_page, as_json, dry_run=dry_run)
    return FOUND if swept["failed"] or swept.get("unlisted") else 0


def fsck(as_json: Json = False) -> int:
    """Check every record, its history and the slices in the cloud."""
    from tpujob.cli.render.admin import fsck_lines

    found = connect().fsck()
    say_json(found) if as_json else say(fsck_lines(found))
    return FOUND if found else 0
