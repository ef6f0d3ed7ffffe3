"""A map that keeps a bounded number of entries."""

from tpujob.lib.lru import LruDict


def test_the_oldest_entry_is_dropped_and_one_that_is_set_again_is_the_newest() -> None:
    entries: LruDict[str, int] = LruDict(2)
    entries["a"], entries["b"] = 1, 2
    entries["a"] = 3
    entries["c"] = 4
    assert [*entries.items()] == [("a", 3), ("c", 4)]
