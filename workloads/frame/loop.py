"""The training loop, the only one: any workload, from the newest checkpoint to the last step.

The rules it keeps:
- The loss of step n is read after step n + 1 was given to the devices, so that they never wait for us.
- A step is judged before its state is saved, and the state before that save is committed: no checkpoint holds a NaN.
- A step that is not finite is the last one: it is replayed, and the verdict is the same on all hosts.
- Whether to save or to stop follows from what all hosts know alike, so all do it at the same step.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from tpujob.contract import REPLAY, Exit, ProgramContext, Reporter, faults
from workloads.checkpoints.saving import Checkpoints
from workloads.data.rows import Feed, RowSource
from workloads.frame import cache_stats
from workloads.frame.chips import peak
from workloads.frame.config import ConfigError, TrainConfig
from workloads.frame.log import ProgressLog
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program, StepOutcome
from workloads.frame.resume import restore
from workloads.frame.signals import Watcher
from workloads.frame.workload import Batch, Workload
from workloads.verdicts.blame import NotFinite
from workloads.verdicts.fault_injection import Injection
from workloads.verdicts.replay import Replay, evidence, examine, examine_state


def train(
    workload: Workload[Any],
    context: ProgramContext,
    reporter: Reporter,
    watcher: Watcher,
) -> Exit:
    """Train until `config.steps`, test, and say how it ended. All hosts call it and get the same answer.

    DONE: trained and tested; the last step is committed. INTERRUPTED: asked to stop; the step that was
    reached is committed. DEVICE, NONFINITE: a step was not finite, and a device, or the model or the data,
    made it; the verdict is written and the checkpoints before it stand.
    """
    config = workload.config
    mesh = mesh_of(config, slices=context.slices)
    injection = Injection(faults.parse(context.fault))
    progress = ProgressLog(
        reporter,
        config,
        speaks=context.host == 0,
        tokens=config.batch * workload.tokens_per_row,
        least_seconds=_least_seconds(workload, mesh),
    )
    progress.line(f"{workload.title}; {_devices(context)}, mesh {dict(mesh.shape)}")
    dataset = workload.dataset()
    feed = Feed(dataset, config.batch, config.seed, jax.process_index(), jax.process_count())
    _compare(config.identity())
    program = Program(workload, mesh)

    progress.phase("restore")
    folder = f"{context.workdir.rstrip('/')}/checkpoints"
    checkpoints = Checkpoints(folder, config.keep, program.layout)
    run = _Run(
        config, program, checkpoints, feed, progress, dataset.test, injection, watcher, context.host
    )
    step, state = restore(checkpoints, program, feed, config, progress, context.resume_before)
    try:
        if step < config.steps:
            progress.phase("compile")
            run.compile(state)
            progress.compiled(cache_stats.counts())
            watcher.training()
            progress.phase("train")
            step, state = run.train(step, state)
    except NotFinite as bad:
        progress.verdict(bad.step, bad.verdict)
        return bad.verdict.code
    if step < config.steps:
        progress.line(f"stopped: step {step} is saved; run again to continue")
        return Exit.INTERRUPTED
    run.test(step, state)
    return Exit.DONE


class _Step(NamedTuple):
    """A step that was dispatched to the devices."""

    number: int
    batch: Batch  #: as it was read, without what an injected fault did to it
    outcome: StepOutcome
    waited_ms: float  #: for the batch
    position: int  #: of the feed behind the batch


@dataclass
class _Run:
    """The steps of a run. `train` is the loop; the other methods are its parts."""

    config: TrainConfig
    program: Program
    checkpoints: Checkpoints
    feed: Feed
    progress: ProgressLog
    test_rows: RowSource
    injection: Injection
    watcher: Watcher
    host: int
    unread: _Step | None = None
    saved: int = 0  #: the step that was saved last

    def compile(self, state: Any) -> None:
        self.step = self.program.compile(self.program.batch(self.feed.example()))
        self.checkpoints.warm_up(state)

    def train(self, done: int, state: Any) -> tuple[int, Any]:
        """Train the steps after `done` until the last, or until a request to stop. Return the step reached, which is
        saved, and its state. Raises NotFinite."""
        config, step = self.config, done
        saves = SaveTimes(config, done)
        self.progress.start_clock()
        good = self.program.all_good()
        for step in range(done + 1, config.steps + 1):
            batch = self.program.batch(self.injection.rows(step, next(self.feed)))
            state, outcome = self.step(state, good, self.injection.batch(step, batch))
            good = outcome.good
            with self.progress.apart():
                self._judge_saved()
            self._read(state)
            behind = self.feed.state["position"]
            self.unread = _Step(step, batch, outcome, self.feed.waited_ms, behind)
            stop = self._is_to_stop(step)
            test = config.eval_every and step % config.eval_every == 0
            if stop or saves.due(step):
                self._read(state)
                with self.progress.apart():
                    self._save(step, state)
                saves.saved(step)
            self._tell(self.checkpoints.committed())
            if stop or step == config.steps:
                break
            if test:
                self._read(state)
                with self.progress.apart():
                    self.test(step, state)
                self.progress.phase("train")
        self.progress.phase("save")
        self._judge_saved()
        self._tell(self.checkpoints.wait())
        return step, state

    def test(self, step: int, state: Any) -> None:
        """Run the test and report its results."""
        self.progress.phase("eval")
        results = self.program.evaluate(state, self.test_rows)
        self.progress.compiled(cache_stats.counts())
        self.progress.tested(step, results)

    def _is_to_stop(self, step: int) -> bool:
        """Return whether to stop after this step. JAX gives all hosts the same answer once one of them got a signal."""
        if jax.process_count() == 1:
            return self.watcher.told
        return multihost_utils.reached_preemption_sync_point(step)

    def _read(self, state: Any) -> None:
        """Wait for the unread step and report its loss. Raises NotFinite; the model in `state` is still the one before
        the step that was not finite, though later steps were computed."""
        last, self.unread = self.unread, None
        if last is None:
            return
        outcome = last.outcome
        figures = outcome.good, outcome.loss, outcome.gradient_norm
        # each has the same on all devices; device_get takes four times as long
        good, loss, norm = (float(np.asarray(number)) for number in figures)
        if not good:  # reported before the line that `watch.nonfinite` may match
            self.progress.phase(REPLAY)
        self.progress.step(last.number, loss, norm, last.waited_ms)
        if good:
            return
        self._tell(self.checkpoints.wait())
        self.progress.line(f"step {last.number} is not finite; replaying it")
        spoil = partial(self.injection.batch, last.number)
        replay = Replay(self.program, self.step, state, last.batch, spoil)
        numbers = self.feed.numbers(last.position)[jax.process_index() :: jax.process_count()]
        verdict = examine(replay, evidence(self.program, outcome), self.host, numbers)
        raise NotFinite(last.number, verdict)

    def _save(self, step: int, state: Any) -> None:
        self._tell(self.checkpoints.save(step, state, self.feed.state, self.config.identity()))
        self.saved = step

    def _judge_saved(self) -> None:
        """Raise NotFinite if the last saved state is not finite; that save is not committed. Called once the devices
        have their next step, as they compute the answer."""
        sound = self.checkpoints.sound()
        if sound is None or not (verdict := examine_state(self.program.layout, sound, self.host)):
            return
        self._tell(self.checkpoints.wait())
        raise NotFinite(self.saved, verdict)

    def _tell(self, committed: int | None) -> None:
        if committed is not None:
            self.progress.committed(committed)


class SaveTimes:
    """At which steps to save: each `checkpoint_every`, the last, and once `checkpoint_minutes` have passed.

    Clocks of hosts differ, and only that of process 0 counts. To ask it makes all hosts wait for each other, so it is
    asked ever more rarely: again after an eighth of the steps since the last save. So late a save may be.
    """

    def __init__(
        self,
        config: TrainConfig,
        done: int,
        clock: Callable[[], float] = time.monotonic,
        answer_of_first: Callable[[Any], Any] = multihost_utils.broadcast_one_to_all,
    ) -> None:
        """`answer_of_first` returns the array that process 0 gives to it, on every process."""
        self._config = config
        self._clock = clock
        self._answer_of_first = answer_of_first
        self.saved(done)

    def saved(self, step: int) -> None:
        """Restart the minutes until the next save."""
        self._begun, self._from, self._asks_at = self._clock(), step, step + 1

    def due(self, step: int) -> bool:
        """Return whether to save after this step. All hosts must call it for each step; they get the same answer."""
        every, minutes = self._config.checkpoint_every, self._config.checkpoint_minutes
        if step == self._config.steps or (every and step % every == 0):
            return True
        if not minutes or step < self._asks_at:
            return False
        self._asks_at = step + max(1, (step - self._from) // 8)
        has_passed = self._clock() - self._begun >= minutes * 60
        return bool(self._answer_of_first(np.array(has_passed)))


def _least_seconds(workload: Workload[Any], mesh: Mesh) -> float:
    """Return the seconds of a step at the peak of all devices; 0 if unknown."""
    peaks = sum(peak(device.device_kind) for device in mesh.devices.flat)
    return workload.config.batch * workload.flops_per_row / peaks if peaks else 0.0


def _compare(identity: Mapping[str, Any]) -> None:
    """Raise ConfigError on all hosts if a host has other data or settings than the first."""
    own_checksums = [zlib.crc32(json.dumps(value).encode()) for value in identity.values()]
    checksums = np.atleast_2d(multihost_utils.process_allgather(np.array(own_checksums, np.uint32)))
    for host, setting in np.argwhere(checksums != checksums[0]):
        name = list(identity)[setting]
        raise ConfigError(
            f"{name} of host {host} differs from that of host 0: here it is {identity[name]}. Give all hosts the same"
        )


def _devices(context: ProgramContext) -> str:
    devices = f"{jax.device_count()} {jax.default_backend()} devices"
    return f"{devices} on {context.hosts} host{'s' * (context.hosts > 1)}"
