"""Whose fault it is, from what was bad with the rows in place and with each unit's rows on the next unit."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.frame.blame import Bad, ReplayFinding, blame_of, marks, transient


def _bad(*units: str) -> Bad:
    """A word for each unit, `x` for a bad row."""
    return np.array([[row == "x" for row in unit] for unit in units])


@pytest.mark.parametrize(
    ("same", "moved", "finding"),
    [
        # a device: all that it is given is bad
        (("..", "xx", "..", ".."), ("..", "xx", "..", ".."), ReplayFinding("device", units=(1,))),
        (("..", "xx"), ("..", "xx"), ReplayFinding("device", units=(1,))),
        # one that fails for some rows only, and other ones the second time
        (("..", "x.", "..", ".."), ("..", ".x", "..", ".."), ReplayFinding("device", units=(1,))),
        (("..", "xx", "xx", ".."), ("..", "xx", "xx", ".."), ReplayFinding("device", units=(1, 2))),
        # one that had failed twice and then works
        (("xx", "..", "..", ".."), ("..", "..", "..", ".."), ReplayFinding("device", units=(0,))),
        # rows that are bad wherever they are
        (("..", ".x", "..", ".."), ("..", "..", ".x", ".."), ReplayFinding("data", rows=(3,))),
        (("..", "..", "..", "x."), ("x.", "..", "..", ".."), ReplayFinding("data", rows=(6,))),
        (("..", ".x", ".x", ".."), ("..", "..", ".x", ".x"), ReplayFinding("data", rows=(3, 5))),
        (
            (".x", ".x", ".x", ".x"),
            (".x", ".x", ".x", ".x"),
            ReplayFinding("data", rows=(1, 3, 5, 7)),
        ),
        # everything
        (("xx", "xx", "xx", "xx"), ("xx", "xx", "xx", "xx"), ReplayFinding("model")),
        (("xx", "x.", "xx", "xx"), ("xx", "xx", "x.", "xx"), ReplayFinding("model")),
        # not finite, and yet each row and gradient was: their sum
        (("..", "..", "..", ".."), ("..", "..", "..", ".."), ReplayFinding("model")),
        # one unit alone
        (("x...",), ("....",), ReplayFinding("data", rows=(0,))),
        (("xxxx",), ("....",), ReplayFinding("model")),
    ],
)
def test_blame_of(same: tuple[str, ...], moved: tuple[str, ...], finding: ReplayFinding) -> None:
    assert blame_of(_bad(*same), _bad(*moved)) == finding


def test_a_replay_with_finite_numbers_blames_the_device() -> None:
    finding = transient(_bad("..", "..", "xx", ".."))
    assert finding == ReplayFinding("device", units=(2,), again=False)


def test_gradients_count_only_where_the_loss_of_every_row_is_finite() -> None:
    loss = np.array([True, True, True, False])
    gradients = np.array([True, False, True, False])
    assert marks(loss, gradients, units=2).tolist() == _bad("..", ".x").tolist()
    assert marks(np.ones(4, bool), gradients, units=2).tolist() == _bad(".x", ".x").tolist()
