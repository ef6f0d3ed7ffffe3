"""The order of the rows: endless, fair, and the same for any number of hosts."""

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

from workloads.data import rows as rows_module
from workloads.data.bundled import digits
from workloads.data.rows import Dataset, Feed, InMemory, Order, Rows, RowSource, split
from workloads.frame.config import ConfigError


def every(source: RowSource) -> Rows:
    return source.take(np.arange(len(source)))


def numbered(count: int = 50, **fields: Any) -> Dataset:
    """Rows that are their own numbers."""
    return Dataset(
        InMemory({"x": np.arange(count)}), InMemory({"x": np.arange(0)}), count, **fields
    )


def test_the_digits_are_scikit_learns_and_no_test_row_is_trained_on() -> None:
    train, test = every(digits().train), every(digits().test)
    assert train["x"].shape == (1437, 64)
    assert test["x"].shape == (360, 64)
    assert train["x"].min() == 0
    assert train["x"].max() == 1
    assert sorted(set(train["y"].tolist())) == list(range(10))


def test_every_row_comes_once_in_each_epoch_and_epochs_differ() -> None:
    order = Order(10, seed=3)
    rounds = order.rows(np.arange(30)).reshape(3, 10)
    assert [sorted(rows_of_epoch) for rows_of_epoch in rounds.tolist()] == [list(range(10))] * 3
    assert rounds[0].tolist() != rounds[1].tolist()
    assert Order(10, seed=4).rows(np.arange(10)).tolist() != rounds[0].tolist()


def test_an_order_that_is_computed_has_every_row_once_in_each_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_module, "MOST_IN_MEMORY", 99)
    order = Order(100, seed=3)
    epochs = order.rows(np.arange(300)).reshape(3, 100)
    assert [sorted(epoch) for epoch in epochs.tolist()] == [list(range(100))] * 3
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3
    tested, trained = split(100, 20)
    numbers = [*tested.tolist(), *trained[np.arange(len(trained))].tolist()]
    assert sorted(numbers) == list(range(100)) != numbers


def test_the_order_of_a_billion_rows_is_not_held_in_memory() -> None:
    order = Order(10**9, seed=3)
    tracemalloc.start()
    try:
        rows = order.rows(np.arange(10**9 - 50, 10**9 + 50))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 50 << 20
    assert len(set(rows.tolist())) > 90
    assert np.corrcoef(rows, np.arange(100))[0, 1] < 0.5
    assert rows.max() < 10**9
    with pytest.raises(ConfigError, match=r"5,000,000,000 rows, and at most 4,294,967,296"):
        Order(5 * 10**9, seed=3).rows(np.arange(1))


def test_a_checkpoint_of_another_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Feed(numbered(), batch=8, seed=0, host=0, hosts=1)
    monkeypatch.setattr(rows_module, "MOST_IN_MEMORY", 49)
    new = Feed(numbered(), batch=8, seed=0, host=0, hosts=1)
    next(new)
    again = Feed(numbered(), batch=4, seed=0, host=1, hosts=2)
    again.state = new.state
    np.testing.assert_array_equal(next(again)["x"], next(new)["x"][:4][1::2])
    for state in ({"position": 8}, old.state):  # before there were two orders, and since
        with pytest.raises(ConfigError, match="another order of more than 49 rows"):
            new.state = state


@pytest.mark.parametrize("readers", [0, 3])
def test_two_hosts_share_the_batch_of_one(readers: int) -> None:
    rows = numbered(readers=readers)
    whole = Feed(rows, batch=8, seed=0, host=0, hosts=1)
    halves = [Feed(rows, batch=8, seed=0, host=host, hosts=2) for host in (0, 1)]
    for _ in range(20):
        batch = next(whole)["x"]
        parts = [next(half)["x"] for half in halves]
        np.testing.assert_array_equal(np.sort(batch), np.sort(np.concatenate(parts)))
        assert whole.state == halves[0].state == halves[1].state


@pytest.mark.parametrize("readers", [0, 3])
def test_a_restored_feed_goes_on_also_with_another_number_of_hosts(readers: int) -> None:
    rows = numbered(readers=readers)
    first = Feed(rows, batch=8, seed=0, host=0, hosts=1)
    for _ in range(9):
        next(first)
    assert first.state == {"position": 72, "order": 1}
    half = Feed(rows, batch=8, seed=0, host=1, hosts=2)
    half.example()
    half.state = first.state
    np.testing.assert_array_equal(next(half)["x"], next(first)["x"][1::2])


def test_another_batch_size_goes_on_with_the_next_row() -> None:
    rows = numbered()
    eights = Feed(rows, batch=8, seed=0, host=0, hosts=1)
    next(eights)
    fives = Feed(rows, batch=5, seed=0, host=0, hosts=1)
    fives.state = eights.state
    np.testing.assert_array_equal(next(fives)["x"], next(eights)["x"][:5])
    assert fives.state == {"position": 13, "order": 1}


class Watched:
    """Rows that can be seen to be read, and that are not read further while they are held."""

    def __init__(self) -> None:
        self.taken = 0
        self.changed = threading.Condition()

    def __len__(self) -> int:
        return 50

    def take(self, which: np.ndarray) -> Rows:
        with self.changed:
            self.taken += 1
            self.changed.notify_all()
        return {"x": which}

    def until(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.taken >= count, timeout=60)


def test_what_was_prepared_and_not_consumed_is_handed_out_again() -> None:
    source = Watched()
    feed = Feed(Dataset(source, source, readers=2), batch=8, seed=0, host=0, hosts=1)
    next(feed)
    source.until(5)
    assert source.taken == 5, "four batches are ready behind the one that was consumed, no more"
    again = Feed(Dataset(source, source, readers=2), batch=8, seed=0, host=0, hosts=1)
    again.state = feed.state
    np.testing.assert_array_equal(next(again)["x"], next(feed)["x"])


def test_what_a_row_draws_depends_on_the_seed_and_its_position_alone() -> None:
    def draw(row: int, random: np.random.Generator) -> Rows:
        return {"x": np.array(row), "drawn": np.array(random.random())}

    rows = numbered(augmented=draw, readers=2)
    whole = Feed(rows, batch=8, seed=0, host=0, hosts=1)
    batches = [next(whole) for _ in range(8)]
    assert len({float(x) for batch in batches for x in batch["drawn"]}) == 64
    odd = Feed(rows, batch=16, seed=0, host=1, hosts=2)
    odd.state = {"position": 16}
    half = next(odd)
    for name in ("x", "drawn"):
        both = np.concatenate([batches[2][name], batches[3][name]])
        np.testing.assert_array_equal(half[name], both[1::2])
    other = next(Feed(rows, batch=8, seed=1, host=0, hosts=1))
    assert set(other["drawn"].tolist()).isdisjoint(batches[0]["drawn"].tolist())


def test_an_error_of_a_reader_reaches_the_training() -> None:
    class Broken(Watched):
        def take(self, which: np.ndarray) -> Rows:
            raise ConfigError("row 3 is no row")

    feed = Feed(Dataset(Broken(), Watched(), readers=2), batch=8, seed=0, host=0, hosts=1)
    with pytest.raises(ConfigError, match="row 3"):
        next(feed)


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="no rows"):
        Feed(numbered(0), batch=8, seed=0, host=0, hosts=1)
