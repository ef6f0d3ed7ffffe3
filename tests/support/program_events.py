"""The events that a program sends through its reporter, read back."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpujob.contract import EVENTS, Exit, ProgramContext, Reporter

Program = Callable[[ProgramContext, Reporter], Exit]


def events_of(folder: Path, program: Program) -> list[dict[str, Any]]:
    """Run the program in this process to its end; return its events. The program must succeed."""
    place = ProgramContext(out=str(folder))
    reporter = Reporter(place)
    try:
        assert program(place, reporter) is Exit.DONE
    finally:
        if reporter._events >= 0:
            os.close(reporter._events)  # a program leaves that to its end
    return [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
