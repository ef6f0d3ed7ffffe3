"""However many reports there are, to list them costs little."""

from decimal import Decimal

from tpujob.domain.hardware.prices import HOURS_A_MONTH, LIST
from tpujob.domain.money.polling_cost import PAGE, UNASKED, seconds_between_lists


def usd_a_month(pages: int) -> Decimal:
    lists = Decimal(HOURS_A_MONTH * 3600 / max(UNASKED, seconds_between_lists(pages)))
    return LIST.usd_of_operations(pages, 0) * lists


def test_all_lists_of_10_000_jobs_of_four_hosts_cost_at_most_60_dollars_a_month() -> None:
    assert usd_a_month(1 + 10_000 * 4 // PAGE) <= 60
    assert usd_a_month(1) < Decimal("3.30"), "of the first job"
    assert max(map(usd_a_month, range(1, 2000))) <= Decimal("60.01"), "whatever lies there"


def test_a_list_of_more_pages_serves_for_longer() -> None:
    assert [seconds_between_lists(pages) for pages in (0, 1, 3, 40)] == [2, 2, 6, 10]
    assert seconds_between_lists(400) > 80
