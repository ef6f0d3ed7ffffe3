"""The end of a command's output is waited for as long as something comes, and no longer."""

from typing import Any

import pytest

from tpujob.agent.commands import wait_until_read
from tpujob.agent.program import PIPE


class Pump:
    """The log, and the thread that reads into it: each wait for it ends with so many more bytes in the log."""

    def __init__(self, *pieces: int, open_after: bool) -> None:
        self.read, self._pieces, self._open_after = 7 * PIPE, list(pieces), open_after
        self.waits = 0

    def is_alive(self) -> bool:
        return bool(self._pieces) or self._open_after

    def join(self, _: float) -> None:
        self.waits += 1
        self.read += self._pieces.pop(0) if self._pieces else 0


@pytest.mark.parametrize(
    ("pieces", "open_after", "waits"),
    [
        ((100, 100, 100, 100), False, 4),  # a slow host reads all of it
        ((), False, 0),
        ((100, 100), True, 3),  # another process holds the pipe open
        ((PIPE,) * 99, True, 2),  # and prints on
    ],
)
def test_output_that_comes_slowly_is_waited_for(
    pieces: tuple[int, ...], open_after: bool, waits: int
) -> None:
    pump: Any = Pump(*pieces, open_after=open_after)
    wait_until_read(pump, pump)
    assert pump.waits == waits
