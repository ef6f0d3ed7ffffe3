"""Plays a planted bug at one place: a story or a short seed."""

import time

from tests.support.simulation import (
    mutants,
    mutants_deadlines,
    mutants_queue,
    mutants_race,
    mutants_recovery,
    mutants_views,
)
from tests.support.simulation.patches import BUGS
from tests.support.simulation.play import play
from tests.support.simulation.profile import NEW
from tests.support.simulation.scenarios import SCENARIOS, violation
from tests.support.simulation.sim import Violation

#: the modules that fill `BUGS`
PLANTED = (
    mutants,
    mutants_recovery,
    mutants_views,
    mutants_queue,
    mutants_deadlines,
    mutants_race,
)
#: where a bug may show: in a story, or in a short seed whose people do not share a queue
PLACES = (*SCENARIOS, *range(40))


def play_with_bug(name: str, where: str | int) -> Violation | None:
    """Play a story or a short seed with the bug; return the violation, if any."""
    with BUGS[name].plant():
        if isinstance(where, int):
            return play(where, short=True, off=NEW | {"lab"}).violation
        return violation(SCENARIOS[where])


def shows(name: str, where: str | int) -> str:
    """Return a line with the violation and the seconds that it took; empty: no violation."""
    begun = time.process_time()
    shown = play_with_bug(name, where)
    return f"{time.process_time() - begun:5.1f} s {where!r}: {shown}" if shown else ""
