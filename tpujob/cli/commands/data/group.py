"""The commands of `tpujob data`; each is a module beside this one."""

import typer

from tpujob.cli.commands.data import HELP, gc, pack, sync, where

app = typer.Typer(no_args_is_help=True, help=HELP)


@app.callback()
def _group() -> None:
    """A group even while it has one command."""


app.command()(sync.sync)
app.command()(where.where)
app.command()(gc.gc)
app.command()(pack.pack)
app.command()(pack.unpack)
