"""What jobs cost on Firestore: reads, writes and deletes of an hour of virtual work, and their price.

Run: python -m tests.bench.bench_firestore [JOBS]. Needs Google's emulator (`tests/support/firestore_emulator.py`).
Counted are the requests themselves, as they are billed: each document that a query returns, each one that a look asks
for, there or not, each one that a stream tells of. It fails where an hour takes more than estimates say.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import firestore_emulator
from tests.support.firestore_network import Network
from tests.support.hour import Hour
from tpujob.adapters.firestore import Firestore, FirestoreStore
from tpujob.domain.money.estimate import FIRESTORE

#: US dollars for 100,000, in one region (us-central1); in a multi-region twice that
PRICES = {"reads": 0.03, "writes": 0.09, "deletes": 0.01}
#: what the free tier gives each day
FREE = {"reads": 50_000, "writes": 20_000, "deletes": 20_000}
HOURS_OF_A_JOB = 24

Bill = Counter[tuple[str, str]]


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    jar = firestore_emulator.jar()
    if jar is None:
        sys.exit(firestore_emulator.MISSING)
    print(f"{jobs} jobs; counts are for one job-hour, on average")
    print(f"{'':66}{'reads':>8}{'writes':>8}{'deletes':>8}")
    print(f"{'in estimates':66}" + "".join(f"{FIRESTORE[what]:8}" for what in PRICES))
    place = tempfile.TemporaryDirectory()
    with place as folder, firestore_emulator.emulator(Path(folder), jar) as endpoint:
        full: Bill = Counter()
        for backends in (2, 1):
            who = f"{backends} backend(s)"
            full = _measured(endpoint, jobs, backends, preempted=[1800])
            _line(f"{who}: start, preemption and end in one hour", full, jobs)
            _hold_to_estimates(full, jobs)
            longer = _measured(endpoint, jobs, backends, hours=2, preempted=[1800])
            longer.subtract(full)
            _line(f"{who}: an hour more", longer, jobs)
        print("\nwhere they go (an hour with a preemption, one backend, the largest first)")
        for (what, why), count in full.most_common(12):
            print(f"  {why or '(none)':40}{what:>10}{count / jobs:8.1f}")
        _line("\nand to remove such a job with its events", _removed(endpoint), 1)


def _measured(
    endpoint: str,
    jobs: int,
    backends: int,
    *,
    hours: float = 1,
    preempted: Sequence[float],
) -> Bill:
    with _stores(endpoint, backends) as (stores, networks):
        hour = Hour(stores, jobs)
        hour.run(hours=hours, preempted=preempted)
        bill = sum((network.billed for network in networks), Bill())
        hour.check(attempts=1 + len(preempted))
    return bill


def _removed(endpoint: str) -> Bill:
    with _stores(endpoint, 1) as ((store,), (network,)):
        hour = Hour([store], 1)
        hour.run(preempted=[1800])
        network.billed.clear()
        store.remove(hour.ids[0], lease=None)
        return network.billed


@contextmanager
def _stores(endpoint: str, count: int) -> Iterator[tuple[list[FirestoreStore], list[Network]]]:
    networks, project = [Network() for _ in range(count)], f"bench-{uuid.uuid4().hex[:8]}"
    stores = [
        FirestoreStore(Firestore(project, endpoint=endpoint, interceptors=[each]), mirrored=True)
        for each in networks
    ]
    try:
        yield stores, networks
    finally:
        for store in stores:
            store.close()


def _each(bill: Bill, jobs: int) -> dict[str, float]:
    """Of one job, by kind of operation."""
    each = dict.fromkeys(PRICES, 0.0)
    for (what, _), count in bill.items():
        each[what] += count / jobs
    return each


def _hold_to_estimates(bill: Bill, jobs: int) -> None:
    for what, count in _each(bill, jobs).items():
        if count > FIRESTORE[what]:
            sys.exit(f"{count:.0f} {what} in an hour of a job; estimates say {FIRESTORE[what]}")


def _line(title: str, bill: Bill, jobs: int) -> None:
    each = _each(bill, jobs)
    month = sum(each[what] * PRICES[what] / 1e5 for what in PRICES) * 100 * HOURS_OF_A_JOB
    share = max(each[what] * 100 * HOURS_OF_A_JOB / 30 / FREE[what] for what in PRICES)
    print(f"{title:66}" + "".join(f"{each[what]:8.0f}" for what in PRICES))
    print(
        f"    100 jobs of {HOURS_OF_A_JOB} h a month: ${month:.2f} in one region, ${2 * month:.2f} in a "
        f"multi-region, before the free tier, of which they use {share:.0%}"
    )


if __name__ == "__main__":
    main()
