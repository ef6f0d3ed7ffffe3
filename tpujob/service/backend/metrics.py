"""The text of `/metrics`: values that are read at each scrape, then the counters of the process (`engine/counters.py`).

Labels come from closed lists, so that the number of series does not grow with jobs and users. Values that the store
cannot return now are left out.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tpujob.domain.model import State
from tpujob.domain.observations import ReasonKind
from tpujob.domain.spec.queue import BANDS
from tpujob.engine import Queue
from tpujob.errors import TpujobError
from tpujob.service.backend.status import BackendStatus
from tpujob.version import __version__


def text(status: BackendStatus, queue: Queue) -> str:
    """Return all metrics, in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Read(status, queue))
    return (generate_latest(registry) + generate_latest(status.counters.registry)).decode()


class _Read(Collector):
    def __init__(self, of: BackendStatus, queue: Queue) -> None:
        self._of, self._queue = of, queue

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, in the same order each time."""
        yield from _process(self._of)
        with contextlib.suppress(TpujobError):  # `tpujob_store_up` says so
            yield from _jobs(self._of)
            yield from _waiting(self._queue)


def _process(of: BackendStatus) -> Iterator[Metric]:
    info = {"version": __version__, "context": of.process.context, "store": of.process.store}
    build = GaugeMetricFamily("tpujob_build_info", "Which tpujob this is.", labels=[*info])
    build.add_metric([*info.values()], 1)
    yield build
    yield _gauge(
        "start_time_seconds", "When the process began, since the epoch.", of.process.started_at
    )
    pulse = of.loop.pulse()
    yield _gauge(
        "last_pass_timestamp_seconds",
        "When the loop last checked which jobs are due; 0: not yet.",
        pulse.passed_at or 0.0,
    )
    yield _gauge("ticks_due", "Jobs whose tick is late, and not begun.", pulse.due)
    yield _gauge("ticks_running", "Jobs that are being ticked.", pulse.ticking)
    yield _gauge(
        "longest_tick_seconds",
        "How long the longest of those ticks has taken so far.",
        pulse.longest_s,
    )
    read_s, _, _ = of.read()
    yield _gauge("store_up", "Whether the store could be read.", read_s is not None)
    if read_s is not None:
        yield _gauge(
            "store_read_seconds", "How long a cheap read of the store took just now.", read_s
        )
    yield _gauge("streams", "Open pages that are kept up to date.", of.streams())
    yield _gauge(
        "notifications_waiting",
        "Messages that are still to be sent; at most 1,000 are counted.",
        of.messages(0.0)[0],
    )
    yield _labelled("refused_offers", "Offers that are not requested now, as they were refused lately.", "cause",
                    of.refused())  # fmt: skip


def _jobs(of: BackendStatus) -> Iterator[Metric]:
    states = of.index.states()
    yield _labelled(
        "jobs",
        "Jobs by state.",
        "state",
        {state.value: states.get(state.value, 0) for state in State},
    )
    held, requested, micros = of.index.hardware()
    yield _labelled(
        "slices",
        "Slices that jobs hold or have requested.",
        "state",
        {"held": held, "asked": requested},
    )
    yield _gauge(
        "cost_dollars_per_hour",
        "List price of the held slices; those of unknown price are left out.",
        micros / 1e6,
    )
    total = of.costs.cost(by="type")["total"]
    yield _labelled(
        "cost_dollars",
        "Billed time of all jobs at list price, by use.",
        "part",
        {str(part["part"]): part["list_micros"] / 1e6 for part in total["parts"]},
    )
    yield _gauge(
        "pay_dollars",
        "The sum of that, without what a grant pays for; 0 on the emulator, which bills nothing.",
        total["pay_micros"] / 1e6,
    )
    if total["goodput"] is not None:
        yield _gauge("goodput_ratio", "The productive part of the billed chip-hours.",
                     total["goodput"])  # fmt: skip


def _waiting(queue: Queue) -> Iterator[Metric]:
    places = queue.plan().places.values()
    bands = Counter(BANDS[place.order.band] for place in places if place.order)
    yield _labelled(
        "queue_jobs",
        "Jobs that may start when it is their turn, by the priority that counts.",
        "band",
        {band: bands[band] for band in BANDS},
    )
    reasons = Counter(place.reasons[0].kind for place in places if place.reasons)
    yield _labelled(
        "queue_waiting_jobs",
        "Jobs that request no slice now, by the first reason.",
        "reason",
        {kind.value: reasons[kind] for kind in ReasonKind},
    )

    overtaken = max(queue.overtaken.values(), default=0)
    yield _gauge("queue_overtakes_max", "How often a waiting job was passed by others.", overtaken)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tpujob_{name}", help, value=float(value))


def _labelled(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"tpujob_{name}", help, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
