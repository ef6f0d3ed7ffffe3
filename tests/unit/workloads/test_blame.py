"""Blame for numbers that are not finite, from what was bad with the rows in place and with each unit's rows on the next
unit."""

import numpy as np
import pytest

from workloads.verdicts.blame import (
    Bad,
    Evidence,
    Finding,
    Place,
    StepVerdict,
    blame_again,
    blame_once,
    blame_state,
    evidence_of,
    verdict_on_state,
    verdict_on_step,
)

#: Four hosts with a device each, and two with two.
APART = [[Place(host, 0)] for host in range(4)]
PAIRS = [[Place(device // 2, device % 2)] for device in range(4)]
#: Of a batch, their numbers in the training set.
ROWS = range(8)


def _bad(*units: str) -> Bad:
    """A word for each unit, `x` for a bad row."""
    return np.array([[row == "x" for row in unit] for unit in units])


def _accusation(verdict: StepVerdict) -> tuple[str, int | None, str, int]:
    return verdict.blame, verdict.host, verdict.device, int(verdict.code)


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
        # not finite, and yet each row and gradient was: their sum, or a link between devices
        (("..", "..", "..", ".."), ("..", "..", "..", ".."), Finding("")),
        # one that was bad twice, and then no more
        ((".x", "..", "..", ".."), None, Finding("device", units=(0,))),
        # one unit alone
        (("x...",), ("x...",), Finding("data", rows=(0,))),
        (("xxxx",), ("xxxx",), Finding("model")),
    ],
)
def test_numbers_that_are_bad_again(
    same: tuple[str, ...], moved: tuple[str, ...] | None, finding: Finding
) -> None:
    moved_evidence = None if moved is None else Evidence(_bad(*moved))
    assert blame_again(Evidence(_bad(*same)), moved_evidence) == finding


def test_a_replay_with_finite_numbers_blames_the_device_that_was_bad_before() -> None:
    finding = blame_once(Evidence(_bad("..", "..", "xx", "..")))
    assert finding == Finding("device", units=(2,), again=False)


def test_a_row_whose_loss_is_finite_is_not_accused_whatever_its_gradient() -> None:
    loss = np.array([True, True, True, False])
    gradients = np.array([False, False, True, False])
    evidence = evidence_of(loss, gradients, units=2)
    assert (evidence.what, evidence.bad.tolist()) == ("loss", _bad("..", ".x").tolist())
    evidence = evidence_of(np.ones(4, bool), gradients, units=2)
    assert (evidence.what, evidence.bad.tolist()) == ("gradient", _bad("xx", ".x").tolist())


class TestOfAState:
    """Four devices; each array is `x` where a device holds something that is not finite."""

    @pytest.mark.parametrize(
        ("arrays", "parts", "finding"),
        [
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
        self, arrays: tuple[str, ...], parts: tuple[str, ...], finding: Finding
    ) -> None:
        numbers = np.array([[int(part) for part in array] for array in parts])
        assert blame_state(~_bad(*arrays).T, numbers.T) == finding

    def test_of_parts_that_exist_once_the_device_is_said_but_not_accused(self) -> None:
        places = [place for [place] in APART]
        verdict = verdict_on_state(Finding("", units=(1,)), places)
        assert _accusation(verdict) == ("", None, "", 65)
        assert "device 0 of host 1 has" in verdict.text
        verdict = verdict_on_state(Finding("device", units=(1,)), places)
        assert (verdict.blame, verdict.host, int(verdict.code)) == ("device", 1, 71)


class TestARowIsNamed:
    """By its number in the training set."""

    READ = (60, 62, 61, 63)

    def test_with_all_other_bad_ones_and_no_host_is(self) -> None:
        verdict = verdict_on_step(Finding("data", rows=(2, 1)), PAIRS, self.READ)
        assert (verdict.rows, verdict.host, verdict.device) == ((61, 62), None, "")
        assert "the loss of rows 61, 62 of the training set" in verdict.text

    def test_once_where_a_small_batch_was_repeated(self) -> None:
        verdict = verdict_on_step(Finding("data", rows=(2, 6, 10)), PAIRS, self.READ)
        assert verdict.rows == (61,)
        assert "the loss of row 61 of the training set" in verdict.text


class TestAHostIsAccused:
    def test_if_all_that_was_bad_is_its_own(self) -> None:
        verdict = verdict_on_step(Finding("device", units=(2, 3), again=False), PAIRS, ROWS)
        assert (verdict.host, verdict.device) == (1, "devices 0, 1 of host 1")
        assert int(verdict.code) == 71

    @pytest.mark.parametrize("again", [True, False])
    def test_but_no_one_if_it_may_have_been_another(self, again: bool) -> None:
        verdict = verdict_on_step(Finding("device", units=(1, 2), again=again), PAIRS, ROWS)
        assert _accusation(verdict) == ("", None, "", 65)
        assert ("and is finite elsewhere" if again else "and is finite when the") in verdict.text
        assert all(part in verdict.text for part in ("devices of hosts 0, 1", "nothing says which"))

    def test_nor_for_bad_gradients_of_weights_that_passed(self) -> None:
        nothing = Evidence(_bad("..", "..", "..", ".."), "gradient")
        assert verdict_on_step(blame_once(nothing), APART, ROWS).host is None
        one_host = [[Place(0, device)] for device in range(4)]
        verdict = verdict_on_step(blame_once(nothing), one_host, ROWS)
        assert (verdict.host, verdict.device) == (0, "devices 0, 1, 2, 3 of host 0")

    def test_nor_for_a_sum_of_what_is_finite(self) -> None:
        verdict = verdict_on_step(Finding(""), APART, ROWS)
        assert (verdict.blame, verdict.host, int(verdict.code)) == ("", None, 65)
