"""The training loop, the only one: any workload, from the newest checkpoint to the last step.

The rules it keeps:
- The loss of step n is read after step n + 1 was given to the devices, so that they never wait for us.
- A step is judged before its state is saved: no checkpoint holds a NaN.
- Whether to save or to stop follows from what all hosts know alike, so all do it at the same step.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from typing import Any

import jax
from jax.experimental import multihost_utils

from workloads.checkpoints import Checkpoints
from workloads.config import ConfigError, TrainConfig
from workloads.contract import Context, Exit, Reporter
from workloads.data import Feed, Rows
from workloads.program import Program, Workload, mesh_of
from workloads.signals import Watcher
from workloads.voice import Voice


def train(
    workload: Workload,
    config: TrainConfig,
    context: Context,
    reporter: Reporter,
    watcher: Watcher,
) -> Exit:
    """Train until `config.steps`, test, and say how it ended. All hosts call it and get the same answer.

    DONE: trained and tested; the last step is committed. INTERRUPTED: told to stop; the step that was
    reached is committed. NONFINITE: the loss is NaN or infinite; the checkpoints before it stand.
    """
    mesh = mesh_of(config, workload)
    voice = Voice(reporter, config, speaks=context.host == 0)
    voice.line(f"{workload.title}; {_devices(context)}, mesh {dict(mesh.shape)}")
    dataset = workload.dataset()
    feed = Feed(dataset.train, config.batch, config.seed, jax.process_index(), jax.process_count())
    program = Program(workload, config, mesh)

    voice.phase("restore")
    checkpoints = Checkpoints(f"{context.workdir.rstrip('/')}/checkpoints", config.keep)
    start, state = _restore(checkpoints, program, feed, config, voice)
    run = _Run(config, program, checkpoints, feed, voice, dataset.test)
    if start < config.steps:
        voice.phase("compile")
        run.compile()
        watcher.training()
        voice.phase("train")
        state, code = run.train(start, state)
        if code is not Exit.DONE:
            return code
    run.test(max(start, config.steps), state)
    return Exit.DONE


def _restore(
    checkpoints: Checkpoints, program: Program, feed: Feed, config: TrainConfig, voice: Voice
) -> tuple[int, Any]:
    """The newest committed step and its state, with the feed set behind it; or 0 and a first state."""
    step = checkpoints.latest()
    if step is None:
        return 0, program.first_state()
    notes = checkpoints.notes(step)
    _check_same(notes["settings"], config, step)
    feed.state = notes["feed"]
    voice.resumed(step)
    return step, checkpoints.state(step, program.layout)


def _check_same(saved: dict[str, Any], config: TrainConfig, step: int) -> None:
    """Raises ConfigError if the checkpoint is of another model or of another order of the data."""
    for name, now in config.identity().items():
        if saved.get(name, now) != now:
            raise ConfigError(
                f"{name}={now}, but the checkpoint of step {step} was made with {saved[name]}: "
                "use that value, or another workdir"
            )


class _Run:
    """The steps. `train` is the loop; the other methods are its parts."""

    def __init__(
        self,
        config: TrainConfig,
        program: Program,
        checkpoints: Checkpoints,
        feed: Feed,
        voice: Voice,
        test_rows: Rows,
    ) -> None:
        self._config = config
        self._program = program
        self._checkpoints = checkpoints
        self._feed = feed
        self._voice = voice
        self._test_rows = test_rows
        self._unread: tuple[int, jax.Array] | None = None

    def compile(self) -> None:
        self._step = self._program.compile(self._feed.example())

    def train(self, done: int, state: Any) -> tuple[Any, Exit]:
        """The steps after `done` up to the last one, unless told to stop or stopped by a NaN."""
        self._voice.start_clock()
        for step in range(done + 1, self._config.steps + 1):
            state, loss = self._step(state, self._program.batch(next(self._feed)))
            finite = self._read()
            self._unread = step, loss
            stop = multihost_utils.reached_preemption_sync_point(step)
            if (save := stop or self._saves_at(step)) and finite:
                finite = self._read()
            if not finite:
                self._voice.line("the loss is not finite: stopped")
                return state, Exit.NONFINITE
            if save:
                self._save(step, state)
            self._note(self._checkpoints.committed())
            if step == self._config.steps:
                break
            if stop:
                return state, self._interrupted(step)
            if self._config.eval_every and step % self._config.eval_every == 0:
                self.test(step, state)
                self._voice.phase("train")
        self._voice.phase("save")
        self._note(self._checkpoints.wait())
        return state, Exit.DONE

    def test(self, step: int, state: Any) -> None:
        """Say how many of the test rows the model has right."""
        self._voice.phase("eval")
        right = self._program.count_right(state, self._test_rows)
        self._voice.accuracy(step, right, of=len(next(iter(self._test_rows.values()))))

    def _saves_at(self, step: int) -> bool:
        return step % self._config.checkpoint_every == 0 or step == self._config.steps

    def _read(self) -> bool:
        """Wait for the loss that is still unread and say it. Returns whether it is finite."""
        if self._unread is None:
            return True
        step, array = self._unread
        self._unread = None
        loss = float(array)
        self._voice.step(step, loss if math.isfinite(loss) else None)
        return math.isfinite(loss)

    def _save(self, step: int, state: Any) -> None:
        notes = {"feed": self._feed.state, "settings": self._config.identity()}
        self._note(self._checkpoints.save(step, state, notes))

    def _note(self, committed: int | None) -> None:
        if committed is not None:
            self._voice.committed(committed)

    def _interrupted(self, step: int) -> Exit:
        self._voice.phase("save")
        self._note(self._checkpoints.wait())
        self._voice.line(f"told to stop: step {step} is saved; run again to go on")
        return Exit.INTERRUPTED


def _devices(context: Context) -> str:
    devices = f"{jax.device_count()} {jax.default_backend()} devices"
    return f"{devices} on {context.hosts} host{'s' * (context.hosts > 1)}"
