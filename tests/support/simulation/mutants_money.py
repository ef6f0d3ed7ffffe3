"""More planted bugs: what is decided about budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.support.simulation.patches import Patch, folded, replaced
from tpujob.domain.events import EventKind
from tpujob.domain.money import budget


def budgets_are_only_shown() -> Patch:
    return mock.patch.object(budget, "used_up", return_value=False)


def stopping_is_free() -> Patch:
    """As if billing ended with the decision."""
    return mock.patch.object(budget, "reserve", return_value=0)


def budget_of_each_slice() -> Patch:
    """What earlier slices have cost is forgotten."""

    def make(real: Any) -> Any:
        return lambda job, *given: real(replace(job, slices=job.slices[-1:]), *given)

    return replaced(budget, "account", make)


def any_slice_is_paid_for() -> Patch:
    return mock.patch.object(budget, "pays_for", return_value=True)


def stops_long_before_the_limit() -> Patch:
    return mock.patch.object(budget, "DELETION", 250.0)


def more_money_comes_too_late() -> Patch:
    """The new limit is stored, and the job ends all the same."""

    def change(job: Any, happened: Any, after: Any) -> Any:
        raised = happened.kind is EventKind.BUDGET_CHANGED
        return replace(after, then=job.then) if raised else after

    return folded(change)


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        budgets_are_only_shown, stopping_is_free, budget_of_each_slice, any_slice_is_paid_for,
        stops_long_before_the_limit, more_money_comes_too_late,
    )
}  # fmt: skip
