"""The backend where it is deployed: Cloud Run, Cloud Scheduler, Firestore, Secret Manager."""

from collections.abc import Iterator
from decimal import Decimal

from tpujob.domain.money.estimate.lines import Sought, free, line
from tpujob.domain.money.estimate.shapes import Kind, Line
from tpujob.domain.prices import HOURS_A_MONTH, Price

#: operations of Firestore in an hour of a job, at most: it starts, is preempted and ends in it, with two backends. An
#: hour in which it only runs takes a third. `tests/bench/bench_firestore.py` fails where it takes more.
FIRESTORE = {"reads": 210, "writes": 100, "deletes": 1}
#: seconds of one vCPU that a tick takes, when the backend only runs while it is called, once a minute
TICK = 2


def control(job: Sought) -> Iterator[Line]:
    around, prices = job.use.around, job.prices
    if not (around.cloud_run or around.firestore):
        yield free(Kind.CONTROL, "backend", "it runs on a machine of yours")
    if around.cloud_run == "always":
        seconds, formula = job.hours * 3600, f"1 x {job.time}; all jobs share it"
        yield _backend("Cloud Run, vCPU", formula, seconds, prices.find("cloud run cpu, always on"))
        memory = prices.find("cloud run memory, always on")
        yield _backend("Cloud Run, GiB", formula, seconds, memory)
    elif around.cloud_run == "called":
        ticks, formula = (
            job.hours * 60,
            f"60 ticks an hour of {TICK} s x {job.time}; all jobs share them",
        )
        yield _backend("Cloud Run, vCPU", formula, ticks * TICK, prices.find("cloud run cpu"))
        yield _backend("Cloud Run, GiB", formula, ticks * TICK, prices.find("cloud run memory"))
        yield _backend("Cloud Run, requests", formula, ticks, prices.find("cloud run requests"))
        formula = f"2 jobs x {job.time} / {HOURS_A_MONTH} h; all jobs share them"
        months = job.hours * 2 / HOURS_A_MONTH
        yield _backend("Cloud Scheduler", formula, months, prices.find("scheduler"))
    if around.firestore:
        for kind, each in FIRESTORE.items():
            formula = f"{each} an hour at most x {job.time}"
            price = prices.find(f"firestore {kind}", "us-central1")
            yield _backend(f"Firestore, {kind}", formula, each * job.hours, price)
    if around.secrets:
        formula, months = f"{job.time} / {HOURS_A_MONTH} h", job.hours / HOURS_A_MONTH
        yield _backend("key of the slice", formula, months, prices.find("secret versions"))


def _backend(what: str, formula: str, amount: Decimal, price: Price | None) -> Line:
    return line(Kind.CONTROL, what, formula, amount, price, "before what is free each month")
