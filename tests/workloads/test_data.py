"""The order of the rows: endless, fair, and the same for any number of hosts."""

from __future__ import annotations

import numpy as np

from workloads.data.rows import Feed, InMemory, Order, digits, synthetic


def test_the_digits_are_scikit_learns_and_no_test_row_is_trained_on() -> None:
    dataset = digits()
    train = dataset.train.take(np.arange(len(dataset.train)))
    assert train["x"].shape == (1437, 64)
    assert dataset.test["x"].shape == (360, 64)
    assert train["x"].min() == 0
    assert train["x"].max() == 1
    assert sorted(set(train["y"].tolist())) == list(range(10))


def test_generated_rows_are_always_the_same() -> None:
    first, second = synthetic(rows=100), synthetic(rows=100)
    np.testing.assert_array_equal(first.test["x"], second.test["x"])
    assert first.test["x"].shape == (20, 784)


def test_every_row_comes_once_in_each_epoch_and_epochs_differ() -> None:
    order = Order(10, seed=3)
    rounds = order.rows(np.arange(30)).reshape(3, 10)
    assert [sorted(one) for one in rounds.tolist()] == [list(range(10))] * 3
    assert rounds[0].tolist() != rounds[1].tolist()
    assert Order(10, seed=4).rows(np.arange(10)).tolist() != rounds[0].tolist()


def test_two_hosts_share_the_batch_of_one() -> None:
    rows = InMemory({"x": np.arange(50)})
    whole = Feed(rows, batch=8, seed=0, host=0, hosts=1)
    halves = [Feed(rows, batch=8, seed=0, host=host, hosts=2) for host in (0, 1)]
    for _ in range(20):
        batch = next(whole)["x"]
        parts = [next(half)["x"] for half in halves]
        np.testing.assert_array_equal(np.sort(batch), np.sort(np.concatenate(parts)))
        assert whole.state == halves[0].state == halves[1].state


def test_a_restored_feed_goes_on_where_it_was_also_with_another_number_of_hosts() -> None:
    rows = InMemory({"x": np.arange(50)})
    first = Feed(rows, batch=8, seed=0, host=0, hosts=1)
    for _ in range(9):
        next(first)
    half = Feed(rows, batch=8, seed=0, host=1, hosts=2)
    half.example()
    half.state = first.state
    np.testing.assert_array_equal(next(half)["x"], next(first)["x"][1::2])
