"""The backend's view of itself: its numbers for Prometheus, its health for people."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.blobs.storage_network import BUCKET, REGION, T
from tests.contract.slices.tpu_slices import SLICE
from tests.support.stage import Stage, leftover
from tests.support.tpu_rig import PROJECT, Cloud
from tests.support.world import orphans
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.adapters.gcs import GcsBlobs
from tpujob.domain.events import EventKind
from tpujob.domain.model import Cause, State
from tpujob.emulator.storage import StorageFault, StorageFaults, StorageServer
from tpujob.engine import Pulse
from tpujob.engine.loop import Loop
from tpujob.errors import NotFound, Refused, StoreError
from tpujob.service.backend import ProcessFacts
from tpujob.service.backend.status import LATE, LATE_CALLED, Look, is_late, troubles
from tpujob.wiring.world import counting

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(text: str) -> Samples:
    """Every sample, as Prometheus reads it."""
    families = text_string_to_metric_families(text)
    return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    """0: there is no such sample."""
    return samples.get((f"tpujob_{name}", frozenset(labels.items())), 0.0)


def scrape(stage: Stage) -> Samples:
    return scraped(stage.api.backend_metrics())


def test_a_preemption_is_told_with_the_time_that_its_job_took_to_run_again(stage: Stage) -> None:
    job = stage.started()
    before = scrape(stage)
    assert value(before, "jobs", state="running") == 1
    assert value(before, "slices", state="held") == 1
    stage.cloud.preempt(f"tj-{job}-1")
    again = stage.running(job, attempt=2)
    after = scrape(stage)
    first, second = again.attempts
    ended = {"outcome": "interrupted", "cause": "PREEMPTED"}
    assert value(after, "attempt_ends_total", **ended) == 1
    assert value(before, "attempt_ends_total", **ended) == 0
    assert value(after, "recovery_seconds_count", cause="PREEMPTED") == 1
    took = second.running_at - first.ended_at
    assert value(after, "recovery_seconds_sum", cause="PREEMPTED") == pytest.approx(took)
    assert value(after, "events_total", kind="attempt_running") == 2
    assert value(after, "commit_seconds_count") > value(before, "commit_seconds_count") > 0


def test_an_end_that_a_person_wished_is_no_recovery(stage: Stage) -> None:
    job = stage.started()
    stage.api.cancel(job)
    stage.until(job, State.HOLDING)
    stage.api.resume(job)
    stage.running(job, attempt=2)
    after = scrape(stage)
    assert not [key for key in after if key[0].startswith("tpujob_recovery_seconds_")]
    assert value(after, "attempt_ends_total", outcome="interrupted", cause="CANCELLED") == 1


def test_a_stockout_and_an_error_of_the_cloud_are_told_as_what_they_are(stage: Stage) -> None:
    stage.faults.refuse_create = [("STOCKOUT", "There is no more capacity in the zone")]
    job = stage.create()
    for _ in range(4):
        stage.step(job)
    metrics = scrape(stage)
    assert value(metrics, "actions_total", action="CreateSlice", outcome="denied") == 1
    assert value(metrics, "refused_offers", cause="STOCKOUT") == 1
    stage.running(job)
    metrics = scrape(stage)
    assert value(metrics, "actions_total", action="CreateSlice", outcome="done") == 1
    assert value(metrics, "refused_offers", cause="STOCKOUT") == 0


def test_a_leak_is_counted_by_whether_it_could_be_deleted(stage: Stage) -> None:
    zone = "us-central2-b"
    leftover(stage, "tj-000009-1", zone)
    sweep = orphans(stage.reconciler, [zone])
    sweep.sweep(dry_run=True)
    assert value(scrape(stage), "leaked_slices_total", outcome="deleted") == 0
    sweep.sweep()
    assert value(scrape(stage), "leaked_slices_total", outcome="deleted") == 1


def test_money_and_the_counts_of_jobs_are_those_of_the_moment(stage: Stage) -> None:
    job = stage.started()
    stage.clock.sleep(3600)
    first = scrape(stage)
    hourly = value(first, "cost_dollars_per_hour")
    assert hourly == pytest.approx(stage.job(job).slices[0].usd_per_hour)
    billed = sum(v for (name, _), v in first.items() if name == "tpujob_cost_dollars")
    assert billed == pytest.approx(value(first, "pay_dollars"))
    assert billed > hourly * 0.9
    assert 0 <= value(first, "goodput_ratio") <= 1
    stage.create(name="another")
    stage.clock.sleep(61)
    second = scrape(stage)
    assert value(second, "jobs", state="queued") == 1
    assert value(second, "pay_dollars") > billed


def test_calls_are_counted_by_service_method_and_outcome(stage: Stage, tmp_path: Path) -> None:
    """Each try counts: what is repeated is transient first."""
    count = counting(stage.reconciler.counters)
    faults, cloud = StorageFaults(), Cloud()
    server = StorageServer(tmp_path / "storage", faults=faults)
    slices = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, count=count("tpu"))
    try:
        blobs = GcsBlobs("test-project", server.url, count=count("storage"))
        blobs.ensure_bucket(BUCKET, REGION, timeout=T)
        blobs.put(f"{BUCKET}/a", b"x", timeout=T)
        faults.add(StorageFault(503, 1, "GET"))
        assert blobs.get(f"{BUCKET}/a", timeout=T) == b"x"
        with pytest.raises(NotFound):
            blobs.get(f"{BUCKET}/b", timeout=T)
        faults.add(StorageFault(403, 1))
        with pytest.raises(Refused):
            blobs.get(f"{BUCKET}/a", timeout=T)
        blobs.close()
        slices.look(SLICE, timeout=10)
    finally:
        slices.close()
        cloud.stop()
        server.stop()
    metrics = scrape(stage)

    def calls(service: str, method: str, outcome: str) -> float:
        return value(metrics, "cloud_calls_total", service=service, method=method, outcome=outcome)

    for outcome in ("done", "transient", "absent", "refused"):
        assert calls("storage", "read", outcome) == 1, outcome
    assert calls("tpu", "get_node", "absent") == 1


def test_series_have_labels_of_closed_lists_and_the_process_keeps_none(stage: Stage) -> None:
    for n in range(3):
        job = stage.started(name=f"a-job-{n}")
        stage.succeed(job)
    api = stage.api
    text = api.backend_metrics()
    assert "a-job" not in text
    assert not re.search(r'"[^"]*00000', text), "no label names a job"
    assert "ada" not in text
    assert "us-central2" not in text
    closed = {"state": {*State, "held", "asked"}, "kind": {*EventKind}, "cause": {*Cause, ""}}
    for name, labels in scraped(text):
        for label, value in labels:
            assert value in closed.get(label, {value}), (name, label)
    names = {f.name for f in text_string_to_metric_families(text)}
    assert all(name.startswith("tpujob_") for name in names)
    assert not [value for value in REGISTRY.collect() if value.name.startswith("tpujob")]
    second = {f.name for f in text_string_to_metric_families(api.backend_metrics())}
    assert second == names, "a second scrape has the same families"


def test_a_scrape_goes_on_without_the_store(stage: Stage) -> None:
    api, broken = stage.api, StoreError("the file cannot be read", hint="")

    def fail(*_: object, **__: object) -> None:
        raise broken

    stage.store.newest = stage.store.changes = fail  # type: ignore[method-assign, assignment]
    stage.store.outbox.due = fail  # type: ignore[method-assign, assignment]
    metrics = scraped(api.backend_metrics())
    assert value(metrics, "store_up") == 0
    assert not [key for key in metrics if key[0] == "tpujob_jobs"]
    health = api.health()
    assert not health["ok"]
    assert health["store"]["read_s"] is None
    assert "the file cannot be read" in health["troubles"][0]["text"]


# Health --------------------------------------------------------------------------------------------------------------


def test_a_loop_says_when_it_last_passed_and_what_it_is_at(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    loop = Loop(stage.reconciler, stage.store, stage.clock, sweep=lambda: None, workers=1)
    assert loop.pulse() == Pulse()
    stage.create()
    ticks, _ = loop.make_pass()
    loop.stop()
    pulse = loop.pulse()
    assert ticks > 0
    assert pulse.passed_at == stage.clock.now()
    assert (pulse.ticking, pulse.longest_s) == (0, 0.0)
    counted = scrape(stage)
    assert value(counted, "tick_seconds_count", outcome="done") == ticks


def test_a_pass_is_late_only_where_jobs_are_looked_after() -> None:
    own, called = ProcessFacts(started_at=1000.0), ProcessFacts(started_at=1000.0, called=True)
    assert not is_late(own, Pulse(), 1e6), "its loop was not started: it only answers"
    assert not is_late(own, Pulse(started_at=1000.0), 1000.0 + LATE)
    assert is_late(own, Pulse(started_at=1000.0), 1001.0 + LATE)
    assert not is_late(own, Pulse(1000.0, passed_at=5000.0), 5000.0 + LATE)
    assert is_late(own, Pulse(1000.0, passed_at=5000.0), 5001.0 + LATE)
    assert not is_late(called, Pulse(passed_at=5000.0), 5000.0 + LATE_CALLED)
    assert is_late(called, Pulse(passed_at=5000.0), 5001.0 + LATE_CALLED)


def test_each_trouble_says_what_it_means_and_what_to_do() -> None:
    process = ProcessFacts(started_at=0.0)
    pulse = Pulse(started_at=0.0, passed_at=100.0, longest_s=1200.0)
    bad = Look(1000.0, pulse, read_s=2.5, overdue=3)
    views = [*troubles(process, bad)]
    assert [view["about"] for view in views] == ["store", "loop", "loop", "notifications"]
    assert views[1]["text"] == "the last pass over the jobs was 15 min ago"
    assert "tpujob up" in views[1]["hint"]
    assert all(view["hint"].endswith(".") for view in views)
    called = [*troubles(replace(process, called=True), bad)]
    assert "Cloud Scheduler" in called[1]["hint"]
    well = Look(1000.0, Pulse(started_at=0.0, passed_at=990.0), read_s=0.001)
    assert not [*troubles(process, well)]
