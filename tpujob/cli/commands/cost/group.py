"""The commands of `tpujob cost`."""

import typer

from tpujob.cli.commands.cost import HELP, estimate, prices, reconcile, report

app = typer.Typer(no_args_is_help=True, help=HELP)


@app.callback()
def cost() -> None:
    """Show what jobs have cost and would cost, budgets, and prices."""


app.command()(report.report)
app.command()(estimate.estimate)
app.command()(reconcile.reconcile)
app.command()(prices.prices)
app.command()(report.budgets)
