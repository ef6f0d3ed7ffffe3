"""`tpujob cost budgets`: what is left of the budgets of the project, of users and of jobs that go on."""

from tpujob.cli.backend import connect
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json, screen


def budgets(as_json: Json = False) -> None:
    """Show what is left of every budget, and until when it lasts."""
    found = connect().budgets()
    if as_json:
        say_json(list(found))
        return
    from tpujob.cli.render.cost.budgets import budgets_page

    on = screen()
    say(budgets_page(found, on.columns, color=on.color))
