"""Every kill point of a story: its effects are counted once, then it is killed before and after each of them."""

import logging
from dataclasses import dataclass

from tests.support.simulation.scenarios import SCENARIOS, tell, violation
from tests.support.simulation.sim import Violation


@dataclass(frozen=True)
class Point:
    scenario: str
    effect: int
    what: str  #: `before`, `after`: a kill; `pause`: a long one; `cancel`: a user's

    def play(self) -> Violation | None:
        logging.disable(logging.CRITICAL)
        try:
            if self.what == "cancel":
                return violation(SCENARIOS[self.scenario], cancel_at=self.effect)
            return violation(SCENARIOS[self.scenario], strike_at=(self.effect, self.what))
        finally:
            logging.disable(logging.NOTSET)

    def command(self) -> str:
        return f"python -m tests.support.simulation --point '{self.scenario}:{self.effect}:{self.what}'"


def points(scenario: str) -> list[Point]:
    """Return all points of a story. All kills between two effects with a change are equal. Pauses are not, where
    another backend works meanwhile: a look from before the pause is old after it."""
    acts, alone = tell(SCENARIOS[scenario]).effects, SCENARIOS[scenario].backends == 1
    pauses = acts.writes if alone else range(1, acts.counts.effects + 1)
    return [
        *(Point(scenario, e, kind) for e in acts.writes for kind in ("before", "after", "cancel")),
        *(Point(scenario, e, "pause") for e in pauses),
    ]


def some(scenario: str, limit: int) -> list[Point]:
    """Return all points, or `limit` of them, evenly spread."""
    every = points(scenario)
    return [every[i * len(every) // limit] for i in range(limit)] if len(every) > limit else every


def parse(text: str) -> Point:
    scenario, effect, kind = text.rsplit(":", 2)
    return Point(scenario, int(effect), kind)
