"""Bugs planted into how hosts report, and into which reports are believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.support.simulation.patches import Patch, everywhere, replaced
from tpujob.agent.upload.report_writer import ReportSchedule
from tpujob.domain.host import report_verifier
from tpujob.domain.host.report_verifier import accept, add_reports


def times_of_reports_are_ignored() -> Patch:
    """What was reported long ago looks fresh, as the object is."""

    def make(real: Any) -> Any:
        def judge(job: Any, host: int, blob: Any, newest: Any, key: Any) -> Any:
            verdict = real(job, host, blob, newest, key)
            reports = tuple(replace(r, since=blob.updated) for r in getattr(verdict, "reports", ()))
            return replace(verdict, reports=reports, replayed=False) if reports else verdict

        return judge

    return everywhere(accept, make)


def old_reports_count() -> Patch:
    """Whatever was reported before."""

    def make(real: Any) -> Any:
        def add(known: Any, *given: Any, **more: Any) -> Any:
            return real(replace(known, newest={}, judged={}), *given, **more)

        return add

    return everywhere(add_reports, make)


def what_was_refused_is_never_tried_again() -> Patch:
    """Neither that, nor anything later."""

    def make(real: Any) -> Any:
        def note_failed(self: Any, now: float) -> None:
            real(self, math.inf)

        return note_failed

    return replaced(ReportSchedule, "note_failed", make)


def what_matters_waits() -> Patch:
    """For the next report."""

    def make(real: Any) -> Any:
        def seconds_left(self: Any, report: Any, evidence: bytes, now: float, **more: Any) -> Any:
            late = getattr(self, "last", -1e9) + 60 - now
            left = max(late, real(self, report, evidence, now, **more))
            self.last = now if left <= 0 else getattr(self, "last", -1e9)
            return left

        return seconds_left

    return replaced(ReportSchedule, "seconds_left", make)


def what_was_overwritten_disturbs_for_ever() -> Patch:
    """Also when no host has written there for hours."""
    return replaced(report_verifier, "DISTURBS", lambda _: float("inf"))


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        times_of_reports_are_ignored, old_reports_count, what_was_refused_is_never_tried_again,
        what_matters_waits, what_was_overwritten_disturbs_for_ever,
    )
}  # fmt: skip
