"""Elastic jobs: the sizes that a file may name, how long each start waits for the largest, and the program's batch."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import SPEC, job_in
from tests.unit.domain.capacity.test_plan import NOW, World, holds
from tpujob.domain.capacity import elastic
from tpujob.domain.capacity.entries import entry
from tpujob.domain.capacity.planning import plan
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.capacity.usage import RecentUsage
from tpujob.domain.decide import decide
from tpujob.domain.host.plan import plans
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.observations import Circuit, Observation, Present, ReasonKind, SliceState
from tpujob.domain.spec import JobSpec, dump, parse
from tpujob.errors import BadSpec

FULL, HALF, QUARTER = "v4-64", "v4-32", "v4-16"
MINUTE = 60.0


def spec(*types: str, **run: Any) -> JobSpec:
    tpu = {"type": list(types), "zones": ["us-central2-b"], "elastic": True}
    program = run or {"workload": "mlp"}
    return parse({"name": "x", "tpu": tpu, "run": program})


@pytest.mark.parametrize(
    "types", [(FULL,), (HALF, FULL), (FULL, FULL), (FULL, "v5e-16"), ("v4-48", HALF)]
)
def test_a_job_file_names_sizes_of_one_generation_the_largest_first(types: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec, match=r"elastic needs a list of types of one generation"):
        spec(*types)


def test_other_programs_must_say_that_they_can() -> None:
    with pytest.raises(BadSpec, match=r"tpu.elastic: the program must .*TPUJOB_ELASTIC: 1"):
        spec(FULL, HALF, command="python3 train.py")
    with pytest.raises(BadSpec, match=r"TPUJOB_ELASTIC: 1"):
        spec(FULL, HALF, workload="numerics")
    says_so = spec(FULL, HALF, command="python3 train.py", env={"TPUJOB_ELASTIC": 1})
    assert parse(dump(says_so)) == says_so
    with pytest.raises(BadSpec, match="TPUJOB_ELASTICITY"):
        spec(FULL, HALF, command="true", env={"TPUJOB_ELASTICITY": 1})


def test_a_smaller_slice_is_worth_a_wait_of_a_start_and_its_loss_of_speed() -> None:
    file = spec(FULL, HALF, QUARTER)
    assert [elastic.patience(file, type) / MINUTE for type in (FULL, HALF, QUARTER)] == [0, 16, 20]
    assert elastic.patience(SPEC, QUARTER) == 0.0


def queued(*types: str) -> Job:
    return replace(job_in(State.QUEUED), spec=spec(*types), created_at=NOW)


@pytest.mark.parametrize("refused", ["stockout", "quota"])
def test_at_each_start_it_waits_for_the_largest_and_then_takes_what_it_can_have(
    refused: str,
) -> None:
    job = entry(queued(FULL, HALF))
    full, half = job.wanted
    circuits = {full.shape: Circuit(full.shape, Cause.STOCKOUT, 1, NOW, NOW + 9000)}
    settings = QueueSettings(quota={full.pool: 32})
    other = holds(7, replace(full, chips=8), owner="bob", began=NOW)
    if refused == "quota":
        circuits, settings = {}, QueueSettings(quota={full.pool: 32})

    def at(minutes: float) -> Any:
        arguments = settings, circuits, RecentUsage(), NOW + minutes * MINUTE, World()
        return plan([job, other], *arguments).places[job.id]

    early = at(15)
    assert not early.ask
    last = early.reasons[-1]
    assert (last.kind, last.until) == (ReasonKind.LARGER, NOW + 16 * MINUTE)
    assert at(16).ask == {half.shape}
    assert plan([job], QueueSettings(), {}, RecentUsage(), NOW, World()).places[job.id].ask == {full.shape}  # fmt: skip


def test_a_job_that_is_not_elastic_never_waits_for_a_larger_slice() -> None:
    """Also when the clock was set back after it was submitted."""
    job = entry(replace(queued(FULL, HALF), spec=SPEC))
    made = plan([job], QueueSettings(), {}, RecentUsage(), NOW - 3600, World())
    assert made.places[job.id].ask == {job.wanted[0].shape}


def test_a_smaller_slice_of_another_job_is_not_taken_before_that() -> None:
    job = entry(queued(FULL, HALF))
    full, half = job.wanted
    facts = {"state": State.RELEASING, "leaves": NOW + 9000, "gives_until": NOW + 9000}
    giver = holds(7, half, owner=job.owner, **facts)
    circuits = {full.shape: Circuit(full.shape, Cause.STOCKOUT, 1, NOW, NOW + 9000)}
    for minutes, heirs in ((1, {}), (17, {giver.slice: job.id})):
        now = NOW + minutes * MINUTE
        made = plan([giver, job], QueueSettings(), circuits, RecentUsage(), now, World())
        assert made.heirs == heirs


def argv(type: str, **args: int) -> list[str]:
    file = spec(FULL, HALF, QUARTER, workload="mlp", args={"batch": 256, **args})
    job = replace(job_in(State.PREPARING), spec=file)
    slice = replace(job.slices[0], type=type)
    return plans(replace(job, slices=(slice,)))[0].document["argv"][3:]


def test_a_bundled_program_keeps_its_batch_in_more_parts_on_a_smaller_slice() -> None:
    assert argv(FULL) == ["--batch=256"]
    assert argv(HALF) == ["--batch=256", "--accumulate=2"]
    assert argv(QUARTER, accumulate=2) == ["--batch=256", "--accumulate=8"]


def test_a_request_in_the_cloud_s_queue_is_given_up_for_a_smaller_slice_after_that_time() -> None:
    asks = replace(job_in(State.PROVISIONING), spec=spec(FULL, HALF), state_since=NOW)
    slice = replace(asks.slices[0], type=FULL, requested_at=NOW, in_queue=True)
    asks = replace(asks, slices=(slice,))
    waiting = Observation(slices={slice.name: Present(SliceState.WAITING)})
    assert decide(asks, waiting, NOW + 15.9 * MINUTE).event is None
    given_up = decide(asks, waiting, NOW + 16 * MINUTE).event
    assert given_up
    assert "has waited 16 min in the cloud's queue" in given_up.text
