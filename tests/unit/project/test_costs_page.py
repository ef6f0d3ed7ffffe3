"""docs/cost.md, what watching costs: the table is what is counted, and its dollars follow from the price list."""

import re
import threading
import time
from decimal import Decimal
from types import ModuleType

import pytest

from tests.support.costed_hour import CASES, HEAD, Case
from tests.support.paths import ROOT
from tests.support.simulation.sim import EPOCH, Sim
from tests.support.virtual_threads import virtual
from tpujob.domain.hardware.prices import LIST

PAGE = (ROOT / "docs" / "cost.md").read_text()
#: counted in each run of the tests; the others by `make bench`
COUNTED = (Case(1, followed=False), Case(4, followed=False))


def rows() -> list[list[str]]:
    """The cells of the table of an hour, below its head."""
    lines = PAGE.partition("\n".join(HEAD) + "\n")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_a_row_for_every_case() -> None:
    shown = [tuple(row[:2]) for row in rows()]
    assert shown == [(str(case.hosts), "yes" if case.followed else "no") for case in CASES]


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_a_row_is_what_an_hour_of_such_a_job_is_counted_to_cost(case: Case) -> None:
    assert case.row(case.played()) in PAGE, "count again: python -m tests.bench.bench_costs"


def test_dollars_follow_from_the_counts_and_the_price_list() -> None:
    for row in rows():
        by_hosts, by_backend, class_b = (int(cell.replace(",", "")) for cell in row[2:5])
        usd = LIST.usd_of_operations(by_hosts + by_backend, class_b)
        assert row[-1] == f"{usd:.4f}", f"{row}: the price list makes it ${usd:.4f}"


def test_prices_and_their_source_are_those_of_the_price_list() -> None:
    for price in (LIST.class_a, LIST.class_b):
        assert f"${price.usd.quantize(Decimal('0.0001'))} for 1,000" in re.sub(r"\s+", " ", PAGE)
        assert f"{price.source.name}, {price.source.as_of}" in PAGE


def test_a_thread_that_another_test_left_behind_sleeps_in_real_time() -> None:
    sim, module, slept = Sim(0), ModuleType("agent"), list[float]()
    vars(module)["time"] = time
    with virtual(sim, module):
        thread = threading.Thread(target=lambda: slept.append(module.time.sleep(0.01) or sim.now))
        thread.start()
        thread.join()
        sim.spawn(lambda: slept.append(module.time.sleep(5) or sim.now))
        sim.run_until(EPOCH + 10)
        sim.stop()
    assert slept == [EPOCH, EPOCH + 5], "the simulation suspends its own tasks, and no other thread"
