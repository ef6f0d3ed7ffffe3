"""Who uses this backend: oneself, and everybody who may."""

from pathlib import Path
from typing import Annotated

import typer

from tpujob.cli.backend import connect
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json, say_page
from tpujob.domain.text import clean

members = typer.Typer(
    invoke_without_command=True, help="Show who may use this backend; give and take roles."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A login or an e-mail address.")]


def whoami(as_json: Json = False) -> int:
    """Say who you are to the backend, and what role you have."""
    found = connect().whoami()
    if as_json:
        say_json(found)
    else:
        say(f"{clean(found['name'])} ({clean(found['id'])}), {found['role']}")
    return 0


@members.callback()
def show_members(context: typer.Context, as_json: Json = False) -> None:
    """Show who may use this backend; give and take roles."""
    if context.invoked_subcommand:
        return
    from tpujob.cli.render.admin import members_table

    say_page(list(connect().members()), members_table, as_json)


@members.command()
def add(
    name: Name,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="viewer, submitter or admin.")],
    as_json: Json = False,
) -> None:
    """Give somebody a role, whether they had one or not."""
    found = connect().give_role(name, role)
    say_json(found) if as_json else say(f"{clean(found['name'])} is {_a(found['role'])} now.")


@members.command()
def remove(name: Name) -> None:
    """Refuse somebody from now on; their jobs go on."""
    connect().remove_member(name)
    say(
        f"{clean(name)} is refused from now on. Their jobs go on: `tpujob list --user {clean(name)}`."
    )


@members.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A line `NAME: ROLE` for each.")],
) -> None:
    """Make the list what a file says, and nothing else."""
    from tpujob.config.members import read
    from tpujob.domain.members import differences

    wanted, api = read(file), connect()
    now = {member["name"]: member["role"] for member in api.members()}
    give, gone = differences(now, wanted)
    for name, role in give.items():
        api.give_role(name, role)
        say(f"{name} is {_a(role)} now.")
    for name in gone:
        api.remove_member(name)
        say(f"{clean(name)} is refused from now on.")


def _a(role: str) -> str:
    return f"an {role}" if role == "admin" else f"a {role}"
