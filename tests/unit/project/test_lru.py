"""A map that keeps a bounded number of entries."""

from tpujob.lib.lru import LruDict


def test_the_oldest_entry_is_dropped_and_one_that_is_set_again_is_the_newest() -> None:
    kept: LruDict[str, int] = LruDict(2)
    kept["a"], kept["b"] = 1, 2
    kept["a"] = 3
    kept["c"] = 4
    assert [*kept.items()] == [("a", 3), ("c", 4)]
