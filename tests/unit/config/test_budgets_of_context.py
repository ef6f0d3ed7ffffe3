"""Budgets in a context's file: what they become, and what is said of wrong ones, each with its line."""

from __future__ import annotations

import pytest

from tpujob.config import context
from tpujob.domain.money.shared import SharedBudget
from tpujob.errors import BadSpec

HEAD = "name: lab\nproject: my-lab-4711\nzones: [us-central2-b]\nbudgets:\n"


def test_the_projects_budget_comes_first() -> None:
    text = HEAD + "  users:\n    ada: {usd: 100}\n  project: {usd: 500.50, per: month}\n"
    found = context.parse(text, "lab.yaml")
    assert context.budgets(found) == (
        SharedBudget(500_500_000, "", monthly=True),
        SharedBudget(100_000_000, "ada"),
    )
    assert context.parse(context.text(found), "lab.yaml") == found
    assert context.budgets(context.parse(HEAD.replace("budgets:\n", ""), "lab.yaml")) == ()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("  project: {usd: -5}", "lab.yaml:5: budgets.project.usd: must be from 0.01 to"),
        ("  project: {usd: 0}", "lab.yaml:5: budgets.project.usd: must be from 0.01 to"),
        ("  project: {usd: .nan}", "lab.yaml:5: budgets.project.usd: must be from 0.01 to"),
        (
            "  project: {usd: 500 EUR}",
            "must be a number of US dollars, such as 50 or 12.50, not the",
        ),
        ("  project: {usd: 5, per: week}", "lab.yaml:5: budgets.project.per: week is not a period"),
        ("  projekt: {usd: 5}", "lab.yaml:5: budgets.projekt: no such key; did you mean project?"),
        ("  users:\n    ada: {eur: 5}", "lab.yaml:6: budgets.users.ada.eur: no such key"),
        ("  users:\n    ada: 5", "lab.yaml:6: budgets.users.ada: must be a mapping with keys of"),
        ("  users: [ada]", "lab.yaml:5: budgets.users: must be a mapping of users to budgets"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(lines: str, says: str) -> None:
    with pytest.raises(BadSpec) as refused:
        context.parse(f"{HEAD}{lines}\n", "lab.yaml")
    assert says in str(refused.value)
