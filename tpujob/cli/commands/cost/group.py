"""The commands of `tpujob cost`."""

import typer

from tpujob.cli.commands.cost import estimate, prices, reconcile, report

app = typer.Typer(
    no_args_is_help=True, help="Show what jobs have cost and would cost, budgets, and prices."
)
for command in (
    report.report, estimate.estimate, reconcile.reconcile, prices.prices, report.budgets,
):  # fmt: skip
    app.command()(command)
