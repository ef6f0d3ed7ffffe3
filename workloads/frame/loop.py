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

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from workloads.contract import Exit, ProgramContext, Reporter, faults
from workloads.data.rows import Feed, RowSource
from workloads.frame import cache_stats
from workloads.frame.checkpoints import Checkpoints
from workloads.frame.config import TrainConfig
from workloads.frame.log import ProgressLog
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program, StepOutcome
from workloads.frame.resume import NoneFinite, restore
from workloads.frame.signals import Watcher
from workloads.frame.workload import Batch, Workload
from workloads.verdicts.blame import StepVerdict
from workloads.verdicts.fault_injection import Injection
from workloads.verdicts.replay import Replay, evidence, examine, examine_state


def train(
    workload: Workload[Any],
    context: ProgramContext,
    reporter: Reporter,
    watcher: Watcher,
) -> Exit:
    """Train until `config.steps`, test, and say how it ended. All hosts call it and get the same answer.

    DONE: trained and tested; the last step is committed. INTERRUPTED: told to stop; the step that was
    reached is committed. DEVICE, NONFINITE: a step was not finite, and a device, or the model or the data,
    made it; the verdict is written and the checkpoints before it stand. NONFINITE also if checkpoints
    were found and none of them is finite.
    """
    config = workload.config
    mesh = mesh_of(config, slices=context.slices)
    injection = Injection(faults.parse(context.fault))
    progress = ProgressLog(reporter, config, speaks=context.host == 0)
    progress.line(f"{workload.title}; {_devices(context)}, mesh {dict(mesh.shape)}")
    dataset = workload.dataset()
    feed = Feed(dataset, config.batch, config.seed, jax.process_index(), jax.process_count())
    program = Program(workload, mesh)

    progress.phase("restore")
    checkpoints = Checkpoints(
        f"{context.workdir.rstrip('/')}/checkpoints", config.keep, program.layout
    )
    try:
        start, state = restore(checkpoints, program, feed, config, progress, context.resume_before)
    except NoneFinite as error:
        progress.verdict(error.step, StepVerdict("model", None, "", str(error)))
        return Exit.NONFINITE
    run = _Run(config, program, checkpoints, feed, progress, dataset.test, injection, context.host)
    if start < config.steps:
        progress.phase("compile")
        run.compile(state)
        progress.compiled(cache_stats.counts())
        watcher.training()
        progress.phase("train")
        state, code = run.train(start, state)
        if code is not Exit.DONE:
            return code
    run.test(max(start, config.steps), state)
    return Exit.DONE


class _Step(NamedTuple):
    """A step that was given to the devices."""

    number: int
    batch: Batch  #: as it was read, without what an injected fault did to it
    outcome: StepOutcome
    waited_ms: float  #: for the batch
    position: int  #: of the feed behind the batch


class _Run:
    """The steps. `train` is the loop; the other methods are its parts."""

    def __init__(
        self,
        config: TrainConfig,
        program: Program,
        checkpoints: Checkpoints,
        feed: Feed,
        progress: ProgressLog,
        test_rows: RowSource,
        injection: Injection,
        host: int,
    ) -> None:
        self._config = config
        self._program = program
        self._checkpoints = checkpoints
        self._feed = feed
        self._progress = progress
        self._test_rows = test_rows
        self._injection = injection
        self._host = host
        self._unread: _Step | None = None

    def compile(self, state: Any) -> None:
        self._step = self._program.compile(self._program.batch(self._feed.example()))
        self._checkpoints.warm_up(state)

    def train(self, done: int, state: Any) -> tuple[Any, Exit]:
        """The steps after `done` up to the last one, unless told to stop or stopped by a bad one."""
        saves = SaveTimes(self._config, done)
        self._progress.start_clock()
        good = self._program.all_good()
        for step in range(done + 1, self._config.steps + 1):
            batch = self._program.batch(self._injection.rows(step, next(self._feed)))
            state, outcome = self._step(state, good, self._injection.batch(step, batch))
            good = outcome.good
            with self._progress.apart():
                code = self._judge_saved()
            if code is not None:
                return state, code
            bad = self._read()
            behind = self._feed.state["position"]
            self._unread = _Step(step, batch, outcome, self._feed.waited_ms, behind)
            stop = multihost_utils.reached_preemption_sync_point(step)
            save = stop or saves.due(step)
            test = self._config.eval_every and step % self._config.eval_every == 0
            if (save or test) and not bad:
                bad = self._read()
            if bad:
                return state, self._examine(bad, state)
            if save:
                with self._progress.apart():
                    self._save(step, state)
                saves.saved(step)
            self._note(self._checkpoints.committed())
            if step == self._config.steps:
                break
            if stop:
                return state, self._interrupted(step)
            if test:
                with self._progress.apart():
                    self.test(step, state)
                self._progress.phase("train")
        return state, self._join_save(Exit.DONE)

    def test(self, step: int, state: Any) -> None:
        """Say what the test rows measure."""
        self._progress.phase("eval")
        found = self._program.evaluate(state, self._test_rows)
        self._progress.compiled(cache_stats.counts())
        self._progress.tested(step, found)

    def _read(self) -> _Step | None:
        """Wait for the step that is still unread and say its loss. Returns it if it was not finite."""
        if self._unread is None:
            return None
        last, self._unread = self._unread, None
        found = last.outcome.good, last.outcome.loss, last.outcome.gradient_norm
        # each has the same on all devices; device_get takes four times as long
        good, loss, norm = (float(np.asarray(number)) for number in found)
        self._progress.step(last.number, _finite(loss), _finite(norm), last.waited_ms)
        return None if good else last

    def _examine(self, bad: _Step, state: Any) -> Exit:
        """Find out who made a step that was not finite; the model in `state` is still the one before it."""
        self._note(self._checkpoints.wait())
        self._progress.phase("replay")
        self._progress.line(f"step {bad.number} is not finite; replaying it")
        replay = Replay(
            self._program,
            self._step,
            state,
            bad.batch,
            spoil=lambda batch: self._injection.batch(bad.number, batch),
        )
        first = evidence(self._program, bad.outcome)
        numbers = self._feed.numbers(bad.position)[jax.process_index() :: jax.process_count()]
        verdict = examine(replay, first, self._host, numbers)
        return self._judged(bad.number, verdict)

    def _judged(self, step: int, verdict: StepVerdict) -> Exit:
        self._progress.verdict(step, verdict)
        return verdict.code

    def _save(self, step: int, state: Any) -> None:
        self._note(self._checkpoints.save(step, state, self._feed.state, self._config.identity()))
        self._saved = step

    def _judge_saved(self) -> Exit | None:
        """The code to end with if the state that was saved last is not finite; it is not committed then. Asked
        once the devices have their next step, as the answer comes from them."""
        sound = self._checkpoints.sound()
        if sound is None or not (verdict := examine_state(self._program.layout, sound, self._host)):
            return None
        self._note(self._checkpoints.wait())
        return self._judged(self._saved, verdict)

    def _note(self, committed: int | None) -> None:
        if committed is not None:
            self._progress.committed(committed)

    def _join_save(self, good: Exit) -> Exit:
        """Wait for the save that is under way. Returns `good`, or another code if the saved state is not finite."""
        self._progress.phase("save")
        bad = self._judge_saved()
        self._note(self._checkpoints.wait())
        return good if bad is None else bad

    def _interrupted(self, step: int) -> Exit:
        code = self._join_save(Exit.INTERRUPTED)
        if code is Exit.INTERRUPTED:
            self._progress.line(f"told to stop: step {step} is saved; run again to go on")
        return code


class SaveTimes:
    """At which steps to save: each `checkpoint_every`, the last, and once `checkpoint_minutes` have passed.

    Clocks of hosts differ, and only that of process 0 counts. It is asked at steps that all know: it says whether
    to save, and when to ask again: halfway to the next save by the pace so far, and after at most as many steps as
    there were since the last save.
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
        """The minutes begin anew."""
        self._begun, self._from, self._asks_at = self._clock(), step, step + 1

    def due(self, step: int) -> bool:
        """Whether to save behind this step. All hosts ask for each step, and get the same answer."""
        every = self._config.checkpoint_every
        if step == self._config.steps or (every and step % every == 0):
            return True
        return bool(self._config.checkpoint_minutes) and step >= self._asks_at and self._ask(step)

    def _ask(self, step: int) -> bool:
        passed, done = self._clock() - self._begun, step - self._from
        left = self._config.checkpoint_minutes * 60 - passed
        halfway = left / max(passed, 1e-9) * done / 2
        next_at = step + max(1, min(halfway, done))
        due, self._asks_at = map(int, self._answer_of_first(np.array([left <= 0, next_at], int)))
        return bool(due)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _devices(context: ProgramContext) -> str:
    devices = f"{jax.device_count()} {jax.default_backend()} devices"
    return f"{devices} on {context.hosts} host{'s' * (context.hosts > 1)}"
