"""Whose fault it is, from what was bad with the rows in place and with each unit's rows on the next unit."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.frame.blame import (
    Bad,
    Evidence,
    Finding,
    Place,
    Reader,
    blame_again,
    blame_once,
    blame_state,
    evidence_of,
    evidence_of_parts,
    readers,
    verdict_on_state,
    verdict_on_step,
)

#: Four hosts with a device each, and two with two.
APART = [[Place(host, 0)] for host in range(4)]
PAIRS = [[Place(device // 2, device % 2)] for device in range(4)]
#: Of eight rows, all read by host 0.
READ = readers([0] * 8, [0], range(8))


def _bad(*units: str) -> Bad:
    """A word for each unit, `x` for a bad row."""
    return np.array([[row == "x" for row in unit] for unit in units])


@pytest.mark.parametrize(
    ("same", "moved", "finding"),
    [
        # one device, whatever it is given
        (("..", "xx", "..", ".."), ("..", "xx", "..", ".."), Finding("device", units=(1,))),
        (("..", "xx"), ("..", "xx"), Finding("device", units=(1,))),
        # one that fails for some rows only, and other ones the second time
        (("..", "x.", "..", ".."), ("..", ".x", "..", ".."), Finding("device", units=(1,))),
        (("..", "xx", "xx", ".."), ("..", "xx", "xx", ".."), Finding("device", units=(1, 2))),
        # one that had failed twice and then works
        (("xx", "..", "..", ".."), ("..", "..", "..", ".."), Finding("device", units=(0,))),
        # rows that are bad wherever they are
        (("..", ".x", "..", ".."), ("..", "..", ".x", ".."), Finding("data", rows=(3,))),
        (("..", "..", "..", "x."), ("x.", "..", "..", ".."), Finding("data", rows=(6,))),
        (("..", ".x", ".x", ".."), ("..", "..", ".x", ".x"), Finding("data", rows=(3, 5))),
        ((".x", ".x", ".x", ".x"), (".x", ".x", ".x", ".x"), Finding("data", rows=(1, 3, 5, 7))),
        # rows of several devices, so that it is on bad ones after the move, too
        (("x", "x", "x", "."), (".", "x", "x", "x"), Finding("data", rows=(0, 1, 2))),
        # everything
        (("xx", "xx", "xx", "xx"), ("xx", "xx", "xx", "xx"), Finding("model")),
        (("xx", "x.", "xx", "xx"), ("xx", "xx", "x.", "xx"), Finding("model")),
        # not finite, and yet each row and gradient was: their sum
        (("..", "..", "..", ".."), ("..", "..", "..", ".."), Finding("model", what="sum")),
        # one unit alone
        (("x...",), None, Finding("data", rows=(0,))),
        (("xxxx",), None, Finding("model")),
    ],
)
def test_what_is_bad_twice(
    same: tuple[str, ...], moved: tuple[str, ...] | None, finding: Finding
) -> None:
    there = None if moved is None else Evidence(_bad(*moved))
    assert blame_again(Evidence(_bad(*same)), there) == finding


def test_a_replay_with_finite_numbers_blames_the_device_that_was_bad_before() -> None:
    found = blame_once(Evidence(_bad("..", "..", "xx", "..")))
    assert found == Finding("device", units=(2,), again=False)


def test_a_row_whose_loss_is_finite_is_not_accused_whatever_its_gradient() -> None:
    loss = np.array([True, True, True, False])
    gradients = np.array([False, False, True, False])
    found = evidence_of(loss, gradients, units=2)
    assert (found.what, found.bad.tolist()) == ("loss", _bad("..", ".x").tolist())
    found = evidence_of(np.ones(4, bool), gradients, units=2)
    assert (found.what, found.bad.tolist()) == ("gradient", _bad("xx", ".x").tolist())


class TestOfTheGradientsOfWeights:
    def test_those_of_one_unit_are_those_of_all_its_rows(self) -> None:
        found = evidence_of_parts(np.array([[1, 2, 8], [1, np.nan, 8]]), rows=3)
        assert found.bad.tolist() == _bad("...", "xxx").tolist()

    def test_a_sum_that_must_be_finite_is_not_the_model_s(self) -> None:
        found = evidence_of_parts(np.array([[1, 2e3, 8], [1, 3e3, 8]]), rows=2)
        assert blame_again(found, None).blame == ""

    @pytest.mark.parametrize(
        "parts", [(3e38, 1, 8), (1, 2e20, 8), (0, 0, 0)], ids=["losses", "gradients", "no weight"]
    )
    def test_a_mean_that_may_not_be_finite_is_the_model_s(
        self, parts: tuple[float, float, float]
    ) -> None:
        found = evidence_of_parts(np.array([parts, parts]), rows=2)
        assert not found.bad.any()
        assert blame_again(found, None) == Finding("model", what="sum")


class TestOfAState:
    """Four devices; each array is `x` where a device holds something that is not finite."""

    @pytest.mark.parametrize(
        ("arrays", "parts", "finding"),
        [
            (("....", "...."), ("0000", "0123"), None),
            # a copy on each device, one of them bad
            (("..x.", "...."), ("0000", "0000"), Finding("device", units=(2,))),
            # all copies alike
            (("xxxx", "...."), ("0000", "0000"), Finding("model")),
            # two parts with two copies each
            (("x...", "...."), ("0011", "0011"), Finding("device", units=(0,))),
            (("xx..", "...."), ("0011", "0011"), Finding("model")),
            # four parts: nobody can tell, unless all are bad, or an array of which each has a copy
            ((".x..", "...."), ("0123", "0123"), Finding("", units=(1,))),
            (("xx..", "..xx"), ("0123", "0123"), Finding("model")),
            ((".x..", ".x.."), ("0123", "0000"), Finding("device", units=(1,))),
        ],
    )
    def test_a_copy_that_differs_is_its_device_s(
        self, arrays: tuple[str, ...], parts: tuple[str, ...], finding: Finding | None
    ) -> None:
        numbers = np.array([[int(part) for part in array] for array in parts])
        assert blame_state(~_bad(*arrays).T, numbers.T) == finding

    def test_of_parts_that_exist_once_the_device_is_said_but_not_accused(self) -> None:
        places = [place for [place] in APART]
        said = verdict_on_state(Finding("", units=(1,)), places)
        assert (said.blame, said.host, said.device, int(said.code)) == ("", None, "", 65)
        assert "device 0 of host 1 has" in said.text
        said = verdict_on_state(Finding("device", units=(1,)), places)
        assert (said.blame, said.host, int(said.code)) == ("device", 1, 71)


class TestARowIsNamed:
    """As the feed numbers it: of n processes, process p reads the rows p, p + n, p + 2n... of a batch."""

    def test_where_the_devices_lie_host_by_host(self) -> None:
        found = readers([0, 0, 1, 1], hosts=[0, 1], numbers=[60, 61, 62, 63])
        assert found == [Reader(0, 0, 60), Reader(0, 2, 62), Reader(1, 1, 61), Reader(1, 3, 63)]

    def test_where_they_lie_otherwise_and_hosts_have_other_numbers_than_processes(self) -> None:
        found = readers([1, 0, 1, 0], hosts=[7, 5], numbers=[60, 61, 62, 63])
        assert found == [Reader(5, 1, 61), Reader(7, 0, 60), Reader(5, 3, 63), Reader(7, 2, 62)]

    def test_with_all_other_bad_ones_and_the_host_that_read_the_first(self) -> None:
        read = readers([0, 0, 1, 1], hosts=[0, 1], numbers=[60, 61, 62, 63])
        said = verdict_on_step(Finding("data", rows=(1, 2)), PAIRS, read)
        assert (said.rows, said.host, said.device) == ((61, 62), 1, "")
        assert "rows 1, 2 of the batch (rows 61, 62 of the training set)" in said.text

    def test_once_where_a_small_batch_was_repeated(self) -> None:
        read = readers([0, 0], [0], [60, 61])
        said = verdict_on_step(Finding("data", rows=(1, 3, 5)), PAIRS, read)
        assert said.rows == (61,)
        assert "row 1 of the batch (row 61 of the training set)" in said.text


class TestAHostIsAccused:
    def test_if_all_that_was_bad_is_its_own(self) -> None:
        said = verdict_on_step(Finding("device", units=(2, 3), again=False), PAIRS, READ)
        assert (said.host, said.device) == (1, "devices 0, 1 of host 1")
        assert int(said.code) == 71

    @pytest.mark.parametrize("again", [True, False])
    def test_but_no_one_if_it_may_have_been_another(self, again: bool) -> None:
        said = verdict_on_step(Finding("device", units=(1, 2), again=again), PAIRS, READ)
        assert (said.blame, said.host, said.device, int(said.code)) == ("", None, "", 65)
        assert "devices of hosts 0, 1" in said.text
        assert "nothing says which" in said.text

    def test_nor_for_bad_gradients_of_weights_that_passed(self) -> None:
        nothing = Evidence(_bad("..", "..", "..", ".."), "gradient")
        assert verdict_on_step(blame_once(nothing), APART, READ).host is None
        one_host = [[Place(0, device)] for device in range(4)]
        said = verdict_on_step(blame_once(nothing), one_host, READ)
        assert (said.host, said.device) == (0, "devices 0, 1, 2, 3 of host 0")

    def test_nor_for_a_sum_that_must_be_finite(self) -> None:
        said = verdict_on_step(Finding("", what="sum"), APART, READ)
        assert (said.blame, said.host, int(said.code)) == ("", None, 65)
