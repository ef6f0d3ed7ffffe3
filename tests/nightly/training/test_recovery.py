"""A run that is cut off goes on as if nothing had happened: same losses, bit for bit, and no step lost
that was saved. One host, and two hosts that train as one."""

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.support.warm import Warm
from tests.support.workload_rig import Host, Job
from tpujob.contract import Exit

#: Small layers, so that the many short runs below are about recovery and not about training.
SMALL = ("--hidden=64,32", "--batch=16", "--keep=2", "--log-every=1000")
LONG = (*SMALL, "--steps=600", "--checkpoint-every=100")
SHORT = (*SMALL, "--steps=300", "--checkpoint-every=60")


def _saved_once(host: Host) -> bool:
    return bool(host.events("checkpoint"))


def _step_of(host: Host, kind: str) -> int:
    return host.events(kind)[-1]["step"]


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, cache: Path, warm: Warm | None
) -> dict[int, tuple[float, float]]:
    """The losses and norms of gradients of the long run on one host."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), cache, warm)
    return job.run(*LONG)[0].numbers()


@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long),
        (signal.SIGTERM, Exit.INTERRUPTED),
    ],
)
def test_an_interrupted_run_goes_on_bit_for_bit(
    job: Job, undisturbed: dict[int, tuple[float, float]], how: signal.Signals, code: int
) -> None:
    with job.start(*LONG) as [first]:
        first.until(_saved_once)
        first.tell(how)
        assert first.code() == code
    [second] = job.run(*LONG)

    assert first.numbers().items() <= undisturbed.items(), "differs before it was cut off"
    assert second.numbers().items() <= undisturbed.items(), "differs after it went on"
    resumed = _step_of(second, "resume")
    assert min(second.losses()) == resumed + 1
    assert max(second.losses()) == 600
    assert first.losses().keys() | second.losses().keys() == undisturbed.keys()
    if how is signal.SIGTERM:
        assert resumed == _step_of(first, "step"), "a step was lost although there was time to save"
    else:
        assert resumed >= _step_of(first, "checkpoint")


def test_a_partial_checkpoint_is_ignored_and_removed(job: Job) -> None:
    job.run(*SMALL, "--steps=40", "--checkpoint-every=20")
    checkpoints = Path(job.workdir) / "checkpoints"
    torn = checkpoints / "60"
    (torn / "state").mkdir(parents=True)
    (torn / "state" / "manifest.ocdbt").write_bytes(b"\0" * 100)
    temporary = checkpoints / "80.orbax-checkpoint-tmp"
    temporary.mkdir()

    [again] = job.run(*SMALL, "--steps=70", "--decay-steps=40", "--checkpoint-every=20")

    assert _step_of(again, "resume") == 40
    assert [event["step"] for event in again.events("checkpoint")] == [60, 70]
    assert not temporary.exists()


def test_another_seed_or_schedule_is_refused(job: Job) -> None:
    job.run(*SMALL, "--steps=10")
    refusals = {
        "--seed=1": "seed=1, but the checkpoint of step 10 was made with 0: use that value, or another workdir",
        "--steps=20": "steps=20 would move the learning rate, which is lowest at step 10 in the run of the checkpoint "
        "of step 10: --decay-steps=10 keeps that, --decay-steps=20 moves it",
    }  # fmt: skip
    for flag, line in refusals.items():
        with job.start(*SMALL, "--steps=10", flag) as [other]:
            assert other.code() == Exit.CONFIG
        assert other.log.read_text().splitlines()[-1] == line

    [longer] = job.run(*SMALL, "--steps=20", "--decay-steps=20")
    assert list(longer.losses()) == list(range(11, 21))


@pytest.mark.parametrize("phase", ["init", "compile"])
def test_a_run_stopped_before_its_first_step_ends_at_once(cold_job: Job, phase: str) -> None:
    with cold_job.start(*SMALL) as [host]:
        host.until(lambda h: any(e["name"] == phase for e in h.events("phase")))
        host.tell(signal.SIGTERM)
        assert host.code() == Exit.INTERRUPTED, host.log.read_text()
    assert not host.events("step")


def test_a_loss_that_is_not_finite_stops_the_run(job: Job) -> None:
    with job.start(*SMALL, "--lr=1e38", "--steps=100", "--checkpoint-every=1") as [host]:
        assert host.code() == Exit.NONFINITE, host.log.read_text()
    steps = host.events("step")
    assert steps[-1]["loss"] in ("nan", "inf")
    assert all(isinstance(event["loss"], float) for event in steps[:-1])
    saved = [event["step"] for event in host.events("checkpoint")]
    assert steps[-1]["step"] not in saved, "a checkpoint was made of a state that is not finite"


class TestTwoHosts:
    """Two processes with two devices each, one program; of which each stands for a slice of its own."""

    @pytest.fixture
    @staticmethod
    def job(tmp_path: Path, cache: Path, warm: Warm | None) -> Job:
        return Job(tmp_path, cache, warm, TPUJOB_SLICES="2")

    @pytest.fixture(scope="class")
    @staticmethod
    def reference(
        tmp_path_factory: pytest.TempPathFactory, cache: Path, warm: Warm | None
    ) -> tuple[Job, list[Host]]:
        """An undisturbed run; its last two checkpoints are of steps 240 and 300."""
        job = Job(tmp_path_factory.mktemp("two"), cache, warm, TPUJOB_SLICES="2")
        return job, job.run(*SHORT, hosts=2)

    def test_both_hosts_see_the_same_losses(self, reference: tuple[Job, list[Host]]) -> None:
        first, second = reference[1]
        assert "mesh {'dcn': 2, 'data': 1, 'fsdp': 1, 'tensor': 2}" in first.log.read_text()
        assert first.numbers() == second.numbers()
        assert len(first.losses()) == 300
        assert first.events("metric")[-1]["value"] == second.events("metric")[-1]["value"]
        assert second.log.read_text() == "", "only host 0 prints"

    def test_a_stop_of_one_host_stops_both_at_one_step_and_they_go_on_bit_for_bit(
        self, job: Job, reference: tuple[Job, list[Host]]
    ) -> None:
        undisturbed = reference[1][0]
        often = (*SHORT, "--checkpoint-every=0", "--checkpoint-minutes=0.005")
        with job.start(*often, hosts=2) as hosts:
            hosts[0].until(_saved_once)
            hosts[1].tell(signal.SIGTERM)
            codes = [host.code() for host in hosts]
        assert codes == [Exit.INTERRUPTED] * 2, hosts[0].log.read_text() + hosts[1].log.read_text()
        saved = [[event["step"] for event in host.events("checkpoint")] for host in hosts]
        assert saved[0] == saved[1], "hosts saved by clocks of their own"
        stopped = _step_of(hosts[0], "checkpoint")
        assert stopped == _step_of(hosts[1], "checkpoint") == _step_of(hosts[0], "step")

        again = job.run(*SHORT, hosts=2)
        assert [_step_of(host, "resume") for host in again] == [stopped] * 2
        assert again[0].numbers().items() <= undisturbed.numbers().items()
        assert again[0].events("metric")[-1]["value"] == undisturbed.events("metric")[-1]["value"]

    def test_hosts_with_different_data_refuse_to_train_together(self, job: Job) -> None:
        job.module = "workloads.lm"
        for host, word in enumerate(("one ", "two ")):
            folder = job.folder / f"data-{host}"
            folder.mkdir()
            (folder / "text").write_text(word * 1000)
            job.on_host[host] = {"TPUJOB_DATA": str(folder)}
        with job.start("--sequence=32", "--batch=8", "--data=", hosts=2) as hosts:
            assert [host.code() for host in hosts] == [Exit.CONFIG] * 2, hosts[0].log.read_text()
        last_lines = [host.log.read_text().splitlines()[-1] for host in hosts]
        assert [line.partition(":")[0] for line in last_lines] == [
            "data of host 1 differs from that of host 0"
        ] * 2
        assert last_lines[0] != last_lines[1], "each says which it has"

    @pytest.mark.parametrize("dies", [0, 1])
    def test_when_one_host_is_killed_the_other_ends_too(self, job: Job, dies: int) -> None:
        with job.start(*SHORT, "--steps=100000", hosts=2) as hosts:
            hosts[0].until(lambda host: host.events("step"))
            hosts[dies].tell(signal.SIGKILL)
            code = hosts[1 - dies].code()
        # JAX aborts by itself when it hears of it before the training loop does
        assert code in (Exit.PEER, -signal.SIGABRT), hosts[1 - dies].log.read_text()

    def test_other_devices_with_another_axis_go_on_where_all_left_off(
        self, job: Job, reference: tuple[Job, list[Host]]
    ) -> None:
        whole, hosts = reference
        shutil.copytree(whole.workdir, job.workdir)
        shutil.rmtree(Path(job.workdir) / "checkpoints" / "300")
        job.environment.clear()
        [alone] = job.run(*SHORT, "--fsdp=0", devices=4)
        assert "'fsdp': 4" in alone.log.read_text()
        assert _step_of(alone, "resume") == 240
        expected, actual = hosts[0].numbers(), alone.numbers()
        off = {step: np.abs(np.subtract(actual[step], expected[step])).max() for step in actual}
        assert len(off) == 60
        assert max(off.values()) < 1e-6, off
