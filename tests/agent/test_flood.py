"""All hosts of a large slice print as fast as they can: every line is kept, for few operations."""

from __future__ import annotations

import pytest

from tests.support.costed_hour import a_flood


@pytest.mark.voice
def test_a_million_lines_a_minute_of_64_hosts_are_all_in_the_bucket() -> None:
    """76 MB a minute: 1.2 MB of each host. They wait for each other until there is too much for one object."""
    bill, read = a_flood(64, lines=15_625, seconds=60)
    assert read == [15_625] * 64, "each line once, in order"
    assert bill.hosts["A"] < 64 * 3 + 12, (
        "a piece for each 4 MiB of a host, and its last one; reports"
    )


def test_hosts_that_print_more_than_others_may_ship_for_them_write_their_own_pieces() -> None:
    bill, read = a_flood(4, lines=30_000, seconds=10)
    assert read == [30_000] * 4
    assert bill.hosts["A"] < 4 * 3 + 12
