"""Runs the checks and says what came out: to a person and to tpujob."""

from __future__ import annotations

import sys
from typing import NamedTuple

import jax

from tpujob.contract import DONE, Exit, ProgramContext, Reporter
from workloads.measure import text
from workloads.numerics import NumericsConfig, checks

#: What `approx_max_k` is asked for, and what it may miss of that by chance.
_RECALL, _CHANCE = 0.95, 0.05


class WrongNumbers(Exception):
    """The machine or its compiler computes something that no setting allows."""


class Check(NamedTuple):
    """One figure, and whether it must be so."""

    name: str
    value: float
    good: bool
    expected: str  #: in words


def run(config: NumericsConfig, context: ProgramContext, reporter: Reporter) -> Exit:
    """Measure and report; host 0 prints, each host reports metrics. Raises WrongNumbers after all reports."""
    reporter.event("phase", name="measure")
    errors = checks.product_errors(config.sizes, config.seed)
    figures = findings(config)
    for error in _at_largest(errors):
        tell(reporter, f"error at d={error.d}: {error.way}: {error.shape}", error.largest)
    for check in figures:
        tell(reporter, check.name, check.value)
    if context.host == 0:
        sys.stdout.write(as_text(errors, figures) + "\n")
    if bad := [check for check in figures if not check.good]:
        raise WrongNumbers("; ".join(f"{c.name} is {c.value:g}, not {c.expected}" for c in bad))
    reporter.event("phase", name=DONE)
    return Exit.DONE


def tell(reporter: Reporter, name: str, value: float) -> None:
    """Report a metric. Commas are removed, as lists of names have them; names are cut off at 60 characters."""
    reporter.event("metric", name=name.replace(",", " "), value=value)


def findings(config: NumericsConfig) -> list[Check]:
    """Return the results of all checks. Facts about the machine, without a required value, are always good."""

    def differing(allowed: bool | None) -> float:
        return checks.excess_precision(config.rows, config.vocabulary, config.seed, allowed=allowed)

    default, strict = differing(None), differing(False)
    rounded = checks.rounded_away(config.seed)
    top = checks.approximate_top_k(config.candidates, config.k, config.seed, _RECALL)
    off = "xla_allow_excess_precision=False"
    return [
        Check("rows whose best logit has two values", default, True, "0, but often is not"),
        Check(f"the same with {off}", strict, strict == 0, "0"),
        Check("numbers that reduce_precision leaves unrounded", rounded, rounded == 0, "0"),
        Check("approx_max_k: recall", top.recall, top.recall >= _RECALL - _CHANCE, f">= {_RECALL}"),
        Check("approx_max_k: the largest is kept", top.top_kept, True, "1, but need not be"),
        Check("approx_max_k: values are operand[indices]", top.honest, top.honest, "1"),
    ]


def as_text(errors: list[checks.ProductError], figures: list[Check]) -> str:
    """Two tables for a person."""
    sizes = sorted({error.d for error in errors})
    products = [("largest error", "by", *(f"d={d}" for d in sizes), "not NumPy's bits")]
    for shape, way in dict.fromkeys((e.shape, e.way) for e in errors):
        by_size = sorted((e for e in errors if (e.shape, e.way) == (shape, way)), key=lambda e: e.d)
        largest = (f"{e.largest:.1e}" for e in by_size)
        products.append((shape, way, *largest, f"{by_size[-1].unequal:.0%}"))
    results = [("", "found", "", "should be")]
    for c in figures:
        results.append((c.name, f"{c.value:g}", "" if c.good else "WRONG", c.expected))
    device = jax.devices()[0]
    head = f"JAX {jax.__version__} on {device.device_kind} ({device.platform}), against float64"
    return f"{head}\n\n{text.columns(products, left=2)}\n\n{text.columns(results)}"


def _at_largest(errors: list[checks.ProductError]) -> list[checks.ProductError]:
    largest = max(error.d for error in errors)
    return [error for error in errors if error.d == largest]
