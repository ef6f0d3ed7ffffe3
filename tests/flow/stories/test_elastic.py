"""An elastic job begins on a smaller slice when the largest is not worth its wait, and on the largest the next time."""

from tests.support.stage import SPEC, Stage
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.host.plan import plans
from tpujob.domain.model import Job, State

POOL = "us-central2-b/v4/spot"
LARGE, SMALL = "v4-32", "v4-16"
ELASTIC = {
    "name": "elastic",
    "tpu": {"type": [LARGE, SMALL], "zones": ["us-central2-b"], "elastic": True},
    "run": {"workload": "mlp", "args": {"batch": 64}},
}


def parts(job: Job) -> list[str]:
    """Return in how many parts the program of the newest attempt computes its batch."""
    argv = plans(job)[0].document["argv"]
    return [word for word in argv if word.startswith("--accumulate")]


def test_each_start_takes_the_size_that_is_worth_its_wait(stage: Stage) -> None:
    stage.queue = QueueSettings(quota={POOL: 16})
    stage.reconciler = stage.new_backend()
    other = stage.create(hand_on=False)
    stage.running(other)
    job = stage.api.create(ELASTIC)["id"]
    submitted = stage.clock.now()
    small = stage.running(job)
    assert [s.type for s in small.slices] == [SMALL]
    waited = small.slices[0].requested_at - submitted
    assert 16 * 60 <= waited < 18 * 60
    assert parts(small) == ["--accumulate=2"]
    stage.succeed(other)
    stage.clock.sleep(3600)
    stage.step(job)
    assert stage.job(job).state is State.RUNNING, "it does not grow while it runs"
    stage.preempt()
    large = stage.running(job, 2)
    assert [s.type for s in large.slices] == [SMALL, LARGE]
    assert parts(large) == []


def test_a_plain_list_of_types_takes_the_next_one_at_once(stage: Stage) -> None:
    stage.queue = QueueSettings(quota={POOL: 16})
    stage.reconciler = stage.new_backend()
    stage.running(stage.create())
    plain = {**SPEC, "name": "plain", "tpu": {**ELASTIC["tpu"], "elastic": False}}
    job = stage.api.create(plain)["id"]
    began = stage.clock.now()
    assert stage.running(job).slices[0].requested_at < began + 60
