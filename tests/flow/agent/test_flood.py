"""All hosts of a slice print as fast as they can: every line is kept, for few operations."""

from __future__ import annotations

from tests.support.costed_hour import a_flood


def test_a_million_lines_a_minute_are_all_in_the_bucket() -> None:
    """14 MB of each of four hosts; ten minutes are played."""
    bill, read = a_flood(4, lines=180_000, seconds=40)
    assert read == [180_000] * 4, "each line once, in order"
    assert bill.hosts["A"] <= 4 * (4 + 1 + 11), "a segment for each 4 MiB, the end; reports"
