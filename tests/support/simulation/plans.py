"""The fate of a run, drawn when its last host starts: it succeeds, crashes, hangs, or its numbers break."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.support.simulation.programs import EVERY, STEP, Program, Run

if TYPE_CHECKING:
    from tests.support.simulation.world import World

#: seconds within which a broken number shows: the program's own replay, or a line of output
SHOWS = (1.0, 45.0)
MEMORY = ("MemoryError",)
BUSY = ("RuntimeError: The TPU is already in use by process 4711",)


@dataclass(frozen=True)
class Work:
    """A job's program: the same in every attempt."""

    steps: int = 30
    contract: bool = True  #: it follows the workload contract; if not, its output is watched
    listens: bool = True  #: whether it stays before a given step
    maths: int = 0  #: its numbers break at this step wherever it runs; 0: they do not
    tells_step: bool = True  #: whether the line about broken numbers names the step
    one_saves: bool = False  #: only its first host saves checkpoints, and lists them
    lists: bool = False  #: every host lists its checkpoints


def draw(random: Random, lengths: tuple[int, ...], maths: float) -> Work:
    steps = int(random.choice(lengths) / STEP)
    breaks = random.randint(2, steps) if random.random() < maths else 0
    contract = random.random() < 0.5
    listens = contract or random.random() < 0.5
    return Work(steps, contract, listens, breaks, random.random() < 0.8)


def plan(world: World, run: Run) -> None:
    """Give the run its future: the first of the drawn faults takes effect."""
    fate = world.sim.random(f"{run.job}:{run.attempt}:fate")
    run.begins = max(p.running_at for p in run.programs.values())
    run.compiles = fate.choice([0.0, 20.0, 20.0, 120.0, 900.0])
    steps = max(1, run.steps - run.resumed)
    _pause(world, run, fate, steps * STEP)
    ends = run.when(steps * STEP)
    first = min(steps * STEP, 1800.0)
    whens = {
        "crash": run.when(fate.uniform(0, first)),
        "hang": run.when(fate.uniform(-run.compiles, first)),
        "left_behind": ends,
        "bad_host": run.when(fate.uniform(STEP, max(2 * STEP, first))),
        "flip": run.when(fate.uniform(STEP, max(2 * STEP, first))),
    }
    hits = {name for name in ("crash", "hang", "left_behind", "flip") if world.drawn(fate, name)}
    if set(world.machines[run.slice].physical) & world.bad:
        hits.add("bad_host")
    if run.tainted:
        hits.add("tainted")
        whens["tainted"] = run.when(STEP)
    if run.work.maths > run.resumed:
        hits.add("maths")
        whens["maths"] = run.when((run.work.maths - run.resumed) * STEP)
    fault = min(hits, key=lambda name: (whens[name], name), default="")
    for program in run.programs.values():
        _over(program, ends + fate.uniform(0, 2), 0)
    if fault and whens[fault] <= ends:
        world.effects.counts.faults += fault not in ("maths", "tainted")
        _befall(world, run, fate, fault, whens[fault])
    if not run.work.contract and fate.random() < 0.3:
        run.quiet_host = fate.randrange(run.hosts)


def _pause(world: World, run: Run, fate: Random, length: float) -> None:
    """Pause the program: a long evaluation, a slow checkpoint, or hosts that freeze and thaw."""
    if not world.drawn(fate, "pause_of_program"):
        return
    run.frozen = fate.random() < 0.5
    begin = run.begins + run.compiles + fate.uniform(0.1, min(length, 3600.0))
    stall = world.monitor.stall(run.job)
    run.pause = (
        begin,
        begin + (fate.uniform(30, 285) if run.frozen else fate.uniform(0.1, 0.7) * stall),
    )


def _over(program: Program, at: float, code: int, *, cause: str = "", error: str = "") -> None:
    program.exit_at, program.exit_code, program.cause, program.error = at, code, cause, error


def _befall(world: World, run: Run, fate: Random, fault: str, at: float) -> None:
    """Let the fault take effect at that time."""
    match fault:
        case "crash":
            _crash(run, fate, at)
        case "hang":
            _hang(run, at)
        case "left_behind":
            _left_behind(run, at)
        case "bad_host":
            machines = world.machines[run.slice].physical
            _device(run, fate, at, next(i for i, p in enumerate(machines) if p in world.bad))
        case "flip":  # on a machine that is not bad
            _device(run, fate, at, fate.randrange(run.hosts))
        case _:
            _maths(run, fate, at)


def _crash(run: Run, fate: Random, at: float) -> None:
    culprit = fate.randrange(run.hosts)
    kind = fate.choice(["crash", "crash", "crash", "memory", "busy"])
    code = fate.choice([1, 1, 70, -11, 78 if fate.random() < 0.2 else 1])
    waits = fate.random() < 0.3
    for program in run.programs.values():
        if program.host == culprit:
            _over(program, at, code if kind == "crash" else 1)
            program.lines = {"memory": MEMORY, "busy": BUSY}.get(kind, ())
        else:
            _over(program, math.inf if waits else at + 5, 76)


def _hang(run: Run, at: float) -> None:
    """Hang in a collective: no host makes progress, none ends."""
    run.hangs = max(run.begins, at)
    for program in run.programs.values():
        _over(program, math.inf, 0)


def _left_behind(run: Run, at: float) -> None:
    """Let only host 0 end; the others wait for it."""
    run.hangs = at
    for program in run.programs.values():
        if program.host:
            _over(program, math.inf, 0)


def _device(run: Run, fate: Random, at: float, culprit: int) -> None:
    """Break a number on that host."""
    run.spoils, run.culprit = at, culprit
    shows = at + fate.uniform(*SHOWS)
    if not run.work.contract:
        _line(run, fate, shows)
        return
    verdict = {"step": run.bad_step(), "host": culprit, "device": "TPU_0", "blame": "device"}
    text = f"step {run.bad_step()} is finite when host {culprit} is left out"
    for program in run.programs.values():
        if program.host == culprit:
            _over(program, shows, 71)
            program.verdict = verdict | {"text": text}
        else:
            _over(program, shows + 3, 76)


def _maths(run: Run, fate: Random, at: float) -> None:
    """Break the numbers wherever the program runs, or resume from wrong numbers that were saved."""
    run.spoils = at
    shows = at + fate.uniform(*SHOWS)
    if not run.work.contract:
        _line(run, fate, shows)
        return
    for program in run.programs.values():
        _over(program, shows + program.host, 65)
        verdict = {"step": run.bad_step(), "host": 0, "device": "", "blame": "model"}
        program.verdict = verdict | {"text": f"step {run.bad_step()} is not finite on any host"}


def _line(run: Run, fate: Random, shows: float) -> None:
    """Print a line with the number; the agent of host 0 stops its program, and the others fail or wait."""
    line = f"step {run.bad_step()} loss=nan"
    step = run.bad_step() if run.work.tells_step else None
    waits = fate.random() < 0.5
    for program in run.programs.values():
        if program.host == 0:
            _over(program, shows + fate.uniform(0, 5), -15, cause="NONFINITE", error=line)
            program.verdict = {"step": step, "host": 0, "device": "", "blame": "", "text": line}
        else:
            _over(program, math.inf if waits else shows + 8, 76)


def settle(world: World, run: Run, now: float) -> None:
    """Record the checkpoints that the run has saved by now."""
    reached, all_saved = run.step(now), run.saved_at() <= now
    if run.spoils <= now and run.tainted:
        reached = (run.bad_step() or 1) - 1  # it shows before anything is saved
        all_saved = False
    steps = list(range((run.kept // EVERY + 1) * EVERY, reached + 1, EVERY))
    if all_saved and reached > run.kept and reached % EVERY:
        steps.append(reached)
    bad = run.bad_step() if run.spoils < run.over() else None
    for step in steps:
        good = bad is None or step < bad
        world.keep(run, step, good)
        run.kept = step
