"""Drawn lines: inside their box, in order, and as wide as they are long."""

import pytest

from tests.support.scripted import job_view
from tpujob.api import JobView
from tpujob.domain.text import rfc3339
from tpujob.web.pages import drawing

NOW = 1_767_225_600.0


def job(*spans: tuple[str, float, float | None, int | None]) -> JobView:
    stretches = [
        {
            "kind": kind,
            "start": rfc3339(NOW - before),
            "end": None if until is None else rfc3339(NOW - until),
            "seconds": before - (until or 0.0),
            "slice": "",
            "attempt": attempt,
            "cause": None,
            "text": "",
            "requests": 0,
            "usd": 1.0,
        }
        for kind, before, until, attempt in spans
    ]
    return job_view(timeline=stretches)


def test_stretches_fill_the_line_and_the_shortest_can_still_be_seen() -> None:
    line = drawing.timeline(
        job(
            ("waiting", 86400, 43200, None),
            ("preparing", 43200, 43199, 1),
            ("productive", 43199, 1, 1),
            ("condemned", 40000, 30000, 1),
            ("releasing", 1, 0, 1),
        ),
        NOW,
    )
    assert line is not None
    assert [bar.span["kind"] for bar in line.beside] == ["condemned"]
    assert all(bar.x >= 0 and bar.x + bar.width <= 100 for bar in line.bars)
    assert [round(bar.width, 1) for bar in line.bars] == [50.0, 0.2, 50.0, 0.2]
    assert [bar.label for bar in line.bars] == ["", "1", "", ""]
    assert 3 <= len(line.marks) <= drawing.MARKS + 1
    assert line.sums[0].kind in ("waiting", "productive")
    assert sum(part.share for part in line.sums) == pytest.approx(1)


def test_a_line_that_goes_on_does_not_move_at_every_look() -> None:
    young = job(("productive", 3600, None, 1))
    first, second = drawing.timeline(young, NOW), drawing.timeline(young, NOW + 1)
    assert first is not None
    assert second is not None
    assert (first.bars, first.marks) == (second.bars, second.marks)
    assert drawing.timeline(job(), NOW) is None
