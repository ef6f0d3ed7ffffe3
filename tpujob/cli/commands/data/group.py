"""The commands of `tpujob data`, each from its module."""

import typer

from tpujob.cli.commands.data import gc, pack, sync, where

app = typer.Typer(no_args_is_help=True, help="Copy and pack data, and show where it is.")
for command in (sync.sync, where.where, gc.gc, pack.pack, pack.unpack):
    app.command()(command)
