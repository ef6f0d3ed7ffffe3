"""Short stories of one job, without chance: what a kill or a cancel at any point of them may not spoil."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.simulation import scenarios_queue as queue
from tests.support.simulation import scenarios_race as race
from tests.support.simulation.acts import EAST, ask, crash_for_good, once
from tests.support.simulation.faults import SliceFaults
from tests.support.simulation.machines import Machine
from tests.support.simulation.plans import Work
from tests.support.simulation.play import Play
from tests.support.simulation.profile import RATES, Profile
from tests.support.simulation.sim import EPOCH, Violation
from tests.support.simulation.users import FLEX, TWO_REGIONS, due, spec
from tests.support.simulation.world import ZONES
from tpujob.domain.access import BACKEND, Principal, Role
from tpujob.domain.capacity.settings import ANYTHING, QueueSettings
from tpujob.domain.model import Slice, State, Suspect
from tpujob.domain.observations import SliceSeen
from tpujob.errors import Transient
from tpujob.ports import BucketPlace
from tpujob.service.jobs import Jobs

JOB = "000001"
#: virtual seconds that a story may take, kills included
LONG = 6 * 3600.0
CORPUS = "gs://corpus/fineweb"
BOB = Principal("test:bob", "bob", Role.SUBMITTER)

Script = Callable[[Play], None]


@dataclass(frozen=True)
class Scenario:
    name: str
    script: Script
    ends: State = State.SUCCEEDED
    #: how it may end besides, where a kill or a pause delays a user's word
    late: State | None = None
    backends: int = 1
    work: Work = field(default_factory=Work)
    budget: float | None = None  #: US dollars
    data: bool = False  #: it reads data that lies in another region
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])  #: of its job file
    queue: QueueSettings = ANYTHING


def tell(
    scenario: Scenario, *, strike_at: tuple[int, str] | None = None, cancel_at: int | None = None
) -> Play:
    """Play a story to its end. Raise Violation, also when it ends otherwise than it should."""
    quiet = dict.fromkeys(RATES, 0.0)
    profile = Profile(quiet, 1, scenario.backends, 0.0)

    def script(play: Play) -> None:
        play.world.work[JOB] = scenario.work
        play.effects.strike_at = strike_at
        if cancel_at is not None:
            play.effects.at[cancel_at] = lambda: ask(play, lambda api: api.cancel(JOB))
        if scenario.data:
            _put_data(play)
        _submit(play, scenario)
        scenario.script(play)

    play = Play(0, profile, script, scenario.queue)
    try:
        _to_the_end(play)
        allowed = {scenario.ends, scenario.late if strike_at else None}
        allowed |= set() if cancel_at is None else {State.CANCELLED}
        job = play.monitor.jobs[JOB]
        if job.state not in allowed:
            raise Violation("L1", JOB, f"{scenario.name} ended as {job.state}: {job.message}")
    except Violation as error:
        error.add_note("\n".join(play.sim.log))
        raise
    finally:
        play.close()
    return play


def violation(scenario: Scenario, **how: Any) -> Violation | None:
    """Play a story; return the violation, if any. `how`: as in `tell`."""
    try:
        tell(scenario, **how)
    except Violation as error:
        return error
    return None


def _to_the_end(play: Play) -> None:
    while play.sim.now < EPOCH + LONG:
        play.sim.run_until(play.sim.now + 120)
        every = [job.state.final for job in play.monitor.jobs.values()]
        if every and all(every) and not [m for m in play.world.machines.values() if m.ours]:
            break
    play.monitor.finish()


# What a script does --------------------------------------------------------------------------------------------------


def _submit(play: Play, scenario: Scenario) -> None:
    document = spec(1, play.sim.random("spec"))
    document |= {"tpu": EAST, "hold": "1m", "recovery": {"stall": "5m"}}
    document |= {"budget": {"usd": scenario.budget}} if scenario.budget else {}
    document |= {"data": CORPUS} if scenario.data else {}
    document |= scenario.more
    ask(play, lambda api: api.create(document, idempotency_key="key"))


def _put_data(play: Play) -> None:
    play.bucket.places["corpus"] = BucketPlace("europe-west4", frozenset({"europe-west4"}))
    for number in range(4):
        play.bucket.put(f"{CORPUS}/{number}", b"data", timeout=1)


def _preempted_and_full(play: Play, machine: Machine) -> None:
    """Preempt the slice, and leave its region without capacity: the job moves."""
    _stockout(play)
    _preempted(play, machine)


def _no_backend_at_its_end(play: Play, machine: Machine) -> None:
    """Let no backend live from a minute before the program is to be told that its slice ends."""
    ends_at = machine.ends_at or math.inf
    play.sim.at(ends_at - 150, lambda: play.no_backend(400))


def _source_changes(play: Play) -> None:
    """Change the data while they are copied."""
    data = {"0": b"other", "9": b"new"}
    put = play.bucket.put
    play.sim.after(
        2.5, lambda: [put(f"{CORPUS}/{n}", d, timeout=1) for n, d in data.items()] and None
    )


def _copy_refused(play: Play) -> None:
    def refuse() -> None:
        for job in play.monitor.jobs.values():
            play.copies.refused |= {dataset.at["us-east5"]: "PERMISSION" for dataset in job.data}

    play.sim.after(3, refuse)


def when(
    play: Play, state: State, do: Callable[[Machine | None], object], *, then: float = 3.0
) -> None:
    """Act once, that many seconds after the job is first seen in this state; with its slice, if it has one by then."""

    def later() -> None:
        play.sim.sleep(then)
        machines = [m for m in play.world.machines.values() if m.job == JOB]
        do(machines[-1] if machines else None)

    once(play, lambda job: job.state is state, later)


def at(state: State, do: Callable[[Play, Machine], object], *, then: float = 3.0) -> Script:
    """Return a script that acts on the slice in this state, if there is one."""
    return lambda play: when(play, state, lambda m: m and do(play, m), then=then)


def running(do: Callable[[Play, Machine], object], *, then: float = 3.0) -> Script:
    return at(_S.RUNNING, do, then=then)


def user(state: State, verb: Callable[[Jobs], object]) -> Script:
    return lambda play: when(play, state, lambda m: ask(play, verb))


def both(*scripts: Script) -> Script:
    return lambda play: [script(play) for script in scripts] and None


def nothing(play: Play) -> None: ...


def _stockout(play: Play) -> None:
    play.world.scarce["us-east5-a"] = math.inf


def _due(seconds: float) -> dict[str, object]:
    return due(EPOCH + seconds, EAST, "10m")


def _no_spot(play: Play) -> None:
    """Let there be no spot for five minutes."""
    until = play.sim.now + 300
    play.world.scarce |= dict.fromkeys(("us-east5-a spot", "us-east5-b spot"), until)


def _preempted_without_spot(play: Play, machine: Machine) -> None:
    _no_spot(play)
    _preempted(play, machine)


def _two_wait(play: Play) -> None:
    """Let two jobs wait for the same type, with no capacity for a while; the cloud is slow to answer."""
    _waits(play, None, 600)
    _slow_to_create(play)


def _another_waits(play: Play, machine: Machine) -> None:
    """Let another job wait for the same type, of which the cloud has no more."""
    _waits(play)


def _bob_waits(play: Play, machine: Machine) -> None:
    """Let a job of another owner wait for the same type."""
    _waits(play, BOB)


def _waits(play: Play, user: Principal | None = BACKEND, seconds: float = 7200) -> None:
    document = spec(2, play.sim.random("another")) | {"tpu": EAST}
    play.world.scarce |= dict.fromkeys(("us-east5-a", "us-east5-b"), play.sim.now + seconds)
    play.world.work["000002"] = Work()
    ask(play, lambda api: api.create(document, idempotency_key="another"), user=user)


def _both_look(play: Play) -> None:
    """Let the other backend look at the job while the first one waits for the cloud."""
    _slow_to_create(play, lambda: play.backends[1].loop.poke(JOB))


def _slow_to_create(play: Play, meanwhile: Callable[[], object] = lambda: None) -> None:
    create = play.slices.create

    def creates(slice: Slice, *, timeout: float, **kwargs: Any) -> None:
        until = play.sim.now + timeout
        meanwhile()
        play.sim.sleep(20)
        if play.sim.now > until:
            raise Transient("create: deadline exceeded")
        create(slice, timeout=until - play.sim.now, **kwargs)

    play.slices.create = creates


def _preempted(play: Play, machine: Machine) -> None:
    SliceFaults(play.world).preempt(machine)


def _ends_with_0(play: Play, machine: Machine) -> None:
    """Preempt the slice; its program saves and ends with 0 on SIGTERM, as some trainers do."""
    _preempted(play, machine)
    for program in machine.running(play.sim.now):
        program.exit_code = 0


def _suspended_late(play: Play, machine: Machine) -> None:
    """Suspend the slice before the program has ended, for minutes."""
    SliceFaults(play.world).preempt(machine, shown_at=play.sim.now, suspends=300)


def _suspended_while_a_clock_is_set(play: Play, machine: Machine) -> None:
    """Set the clock of the backend an hour ahead, soon after the cloud began to suspend the slice."""
    _suspended_late(play, machine)
    play.sim.after(60, lambda: play.set_clock(play.backends[0].process, 3600.0, 600.0))


def _never_suspended(play: Play, machine: Machine) -> None:
    SliceFaults(play.world).preempt(machine, shown_at=play.sim.now, suspends=1e9)


def _dead_ready(play: Play, machine: Machine) -> None:
    SliceFaults(play.world).preempt(machine, shown_at=math.inf)
    machine.dead_at = play.sim.now
    for program in machine.running(play.sim.now):
        program.died_at, program.noticed_at = play.sim.now, math.inf


def _done_and_then(verb: Callable[[Jobs], object]) -> Callable[[Play, Machine], object]:
    """End the program with 0 on every host; before a backend sees the end, let the user send another command."""

    def end(play: Play, machine: Machine) -> None:
        for run in machine.runs:
            run.steps = run.step(play.sim.now)
            for program in run.programs.values():
                program.exit_at, program.exit_code = play.sim.now, 0
        ask(play, verb)

    return end


def _short_lives(play: Play, machine: Machine) -> None:
    """Give each backend half a minute to live, as on a platform that starts backends only for requests."""
    for backend in play.backends:
        play.end(backend.process, 1.0)
    play.sim.after(31, lambda: _short_lives(play, machine))


def _refused_ahead(play: Play) -> None:
    """Let no zone have capacity for some minutes, and the clock of the first backend be two hours ahead."""
    play.world.scarce |= dict.fromkeys(ZONES, play.sim.now + 600)
    play.begin_ahead(play.backends[0], 7200.0, 120.0)


def _no_backend_and_no_reports(play: Play, machine: Machine) -> None:
    """Block the hosts' writes, and let no backend live but at the beginning and for the last seconds of that time."""
    now = play.sim.now
    machine.blocked.append((now, now + 2200))
    play.sim.after(200, lambda: play.no_backend(1990))


def _refused(play: Play, machine: Machine) -> None:
    """Refuse the writes of its hosts for twenty minutes, while the bucket answers the backend."""
    machine.blocked.append((play.sim.now, play.sim.now + 1200))


def _cut_off_early(play: Play, machine: Machine) -> None:
    """Let the second host neither report nor answer over SSH, while its program runs."""
    _agent_killed(play, machine)
    machine.down[1] = math.inf


def _unreachable(play: Play, machine: Machine) -> None:
    machine.down = dict.fromkeys(range(machine.hosts), math.inf)


def _started_late(play: Play, machine: Machine) -> None:
    """Make the hosts unreachable, with no backend, for most of the time that a launch may take; when it is over, the
    programs have just been started, and cannot write yet."""
    now = play.sim.now
    machine.down = dict.fromkeys(range(machine.hosts), now + 1650)
    machine.blocked.append((now, now + 2050))
    play.no_backend(1500)


def _never_answers(play: Play, machine: Machine) -> None:
    machine.lost[1] = play.sim.now


def _agent_killed(play: Play, machine: Machine) -> None:
    """Kill the second host's agent before it reports the start of its program, and let no backend live until the other
    host has reported steps."""
    for program in machine.running(play.sim.now):
        program.silent_at = play.sim.now if program.host else math.inf
    play.no_backend(200)


def _forged(play: Play, machine: Machine) -> None:
    """Forge reports that the program has ended, again and again."""
    play.bucket.forge(machine, {"phase": "exited", "exit_code": 0})
    if play.sim.now < EPOCH + 600:
        play.sim.after(4, lambda: _forged(play, machine))


def _overwritten(play: Play, machine: Machine) -> None:
    """End the run while no backend lives, and let others overwrite the last reports of its hosts."""
    play.no_backend(500)
    play.sim.after(400, lambda: play.bucket.forge(machine, {"phase": "running"}))


def _hidden(play: Play, machine: Machine) -> None:
    """Kill the slice, and let others put its old reports back, again and again."""
    _dead_ready(play, machine)
    _put_back(play, machine, play.bucket.reports_of(machine), EPOCH + LONG - 3600)


def _ends_by_turns(play: Play, machine: Machine) -> None:
    """End one host before the other; in between, others put its old report back."""
    old, now = {0: play.bucket.reports_of(machine)[0]}, play.sim.now
    for run in machine.runs:
        run.steps = run.step(now)
        for program in run.programs.values():
            program.exit_at, program.exit_code = now + 50 * program.host, 0
    play.sim.after(20, lambda: _put_back(play, machine, old, now + 60))


def _put_back(
    play: Play, machine: Machine, old: Mapping[int, Mapping[str, str]], until: float
) -> None:
    play.bucket.put_back(machine, old)
    if play.sim.now < until:
        play.sim.after(10, lambda: _put_back(play, machine, old, until))


def _hangs(play: Play, machine: Machine) -> None:
    for run in machine.runs:
        run.hangs = play.sim.now
        for program in run.programs.values():
            program.exit_at = math.inf


def _half_done(play: Play, machine: Machine) -> None:
    _hangs(play, machine)
    for program in machine.running(play.sim.now):
        if program.host == 0:
            program.end(play.sim.now, 0)


def _frozen(play: Play, machine: Machine) -> None:
    """Freeze the hosts with their agents for longer than the program may be idle. On thawing they report at once, and
    the reports show the long idle time."""
    for run in machine.runs:
        thaws = play.sim.now + 100
        run.pause, run.frozen = (play.sim.now, thaws), True
        for program in run.programs.values():
            program.exit_at += thaws - play.sim.now


def _crashes(play: Play, machine: Machine) -> None:
    for program in machine.running(play.sim.now):
        program.end(play.sim.now + program.host, 76 if program.host else 1)


def _cut_off(play: Play, machine: Machine) -> None:
    """Cut the slice off while its programs run on. Its deletion fails unseen."""
    machine.blocked.append((play.sim.now, math.inf))
    machine.down = dict.fromkeys(range(machine.hosts), math.inf)
    machine.survives = 1


def _dies_for_ever(play: Play, machine: Machine) -> None:
    """Kill the second host; the first host waits for it."""
    machine.lost[1] = play.sim.now
    for program in machine.running(play.sim.now):
        if program.host:
            program.died_at = play.sim.now
        else:
            program.exit_at = math.inf


def _peers_end(play: Play, machine: Machine) -> None:
    """Kill the first host; its peers notice within seconds, and say so."""
    machine.lost[0] = play.sim.now
    for program in machine.running(play.sim.now):
        if program.host:
            program.end(play.sim.now + 10, 1)
            program.lines = ("E0000 grpc: Socket closed grpc_status:14",)
        else:
            program.died_at = play.sim.now


def _left_out(play: Play, machine: Machine) -> None:
    machine.left_out = (play.sim.now, math.inf)


def _cancelled_meanwhile(play: Play) -> None:
    """Let the slice be missing, as the cloud was away at its request. While the backend that sees this is held up, the
    job is cancelled, and another backend carries out the cancellation."""
    away, look, callers = EPOCH + 30, play.slices.look, iter([True])
    play.world.cloud_outage.until = play.backends[1].process.paused_until = away

    def looks(slice: Slice, *, timeout: float) -> SliceSeen:
        seen = look(slice, timeout=timeout)
        if play.sim.now > away and next(callers, False):
            ask(play, lambda api: api.cancel(JOB))
            play.sim.sleep(40)
        return seen

    play.slices.look = looks


def _replies_lost(play: Play) -> None:
    """Lose the replies of the first submit and of the first start, both of which were carried out."""
    play.store.create = _first_reply_lost(play.store.create)
    play.hosts.start = _first_reply_lost(play.hosts.start)


def _first_reply_lost(call: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter([True])

    def called(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if next(calls, False):
            raise Transient("the connection was reset")
        return result

    return called


def _torn(play: Play, machine: Machine) -> None:
    """Show the slice in part in lists; for a while its hosts cannot write, so that they do not contradict the lists."""
    machine.torn = (play.sim.now, math.inf)
    machine.blocked.append((play.sim.now + 100, play.sim.now + 180))


def _deleted_unseen(play: Play, machine: Machine) -> None:
    """Delete the slice by hand, when it is too old to be looked at by name; lists had not shown it before, either."""
    machine.left_out = (play.sim.now, math.inf)
    play.sim.after(120, lambda: play.world.cloud.delete(machine, 0.0))


def _missed_twice(play: Play, machine: Machine) -> None:
    """Hide the slice for a moment, and five minutes later again; the cloud does not answer in between."""
    now, away = play.sim.now, play.world.cloud_outage
    machine.absent, machine.left_out = (now, now + 20), (now, math.inf)

    def later() -> None:
        away.until, machine.absent = now + 300, (now + 300, now + 320)

    play.sim.after(20, later)


def _deaf(play: Play, machine: Machine) -> None:
    """Close SSH for an hour, so that its programs cannot be stopped."""
    machine.down = dict.fromkeys(range(machine.hosts), play.sim.now + 3600)


def _bad_machine(play: Play) -> None:
    play.world.bad.add(play.world.free("us-east5-a", "v5p-16")[1])


def _bad_machines(play: Play) -> None:
    """Make one machine bad below each of the first two slices."""
    play.world.bad.update(play.world.free("us-east5-a", "v5p-16")[1:4:2])


def _all_bad(play: Play) -> None:
    play.world.bad.update(*play.world.cloud.stock.hosts.values())


def _dies_unseen(play: Play, machine: Machine) -> None:
    """Kill the slice without a notice, while the cloud does not answer."""
    _dead_ready(play, machine)
    play.world.cloud_outage.until = play.sim.now + 400


def _suspected(play: Play) -> None:
    first = play.world.free("us-east5-a", "v5p-16")[0]
    play.real.reputation.put(Suspect(first, "us-east5-a", EPOCH, "bad"))


def _store_away(play: Play, machine: Machine) -> None:
    play.store.outage.until = play.sim.now + 400
    _preempted(play, machine)


def _bucket_away(play: Play, machine: Machine) -> None:
    play.bucket.outage.until = play.sim.now + 400


def _orphan(play: Play, machine: Machine) -> None:
    play.plant(ours=True, age=4000.0)
    play.plant(ours=False, age=4000.0)


_SUCCEEDED, _CANCELLED, _FAILED = State.SUCCEEDED, State.CANCELLED, State.FAILED
_S = State
_LAB = QueueSettings(hand_on="lab")
#: an hour, and more than a small budget pays for
_LONG = Work(360)

_TEN_MINUTES = FLEX | {"run_for": "10m"}
_ENDING = {"tpu": _TEN_MINUTES, "recovery": {"stall": "5m", "planned_ends": 9}}

SCENARIOS: Mapping[str, Scenario] = {
    s.name: s
    for s in (
        Scenario("happy", nothing),
        Scenario("stockout, then the next zone", _stockout),
        Scenario("stockout while a clock is ahead", _refused_ahead),
        Scenario("two jobs wait for the same", _two_wait),
        Scenario("handed on", running(_another_waits)),
        Scenario("handed on, with two backends", running(_another_waits), backends=2),
        Scenario("handed on to another owner", running(_bob_waits), queue=_LAB),
        Scenario(
            "handed on to another owner, with two backends", running(_bob_waits), backends=2,
            queue=_LAB
        ),
        Scenario(
            "its hold runs out, and it is handed on",
            both(running(_another_waits), user(_S.RUNNING, lambda api: api.cancel(JOB))),
            ends=_CANCELLED, late=_SUCCEEDED
        ),
        Scenario(
            "crashes for good, and is handed on",
            both(running(_another_waits), running(crash_for_good)), ends=_FAILED, late=_SUCCEEDED
        ),
        Scenario(
            "preempted while it is handed on",
            both(running(_another_waits), at(_S.RELEASING, _preempted))
        ),
        Scenario("preempted while running", running(_preempted, then=70.0)),
        Scenario("preempted, and its program ends with 0", running(_ends_with_0, then=70.0)),
        Scenario("preempted while it is prepared", at(_S.PREPARING, _preempted)),
        Scenario("preempted before it is ready", at(_S.PROVISIONING, _preempted)),
        Scenario("preempted, and suspended late", running(_suspended_late)),
        Scenario(
            "preempted, and suspended while a clock is set",
            running(_suspended_while_a_clock_is_set),
        ),
        Scenario("preempted, and never suspended", running(_never_suspended)),
        Scenario("dead, and called ready", running(_dead_ready)),
        Scenario(
            "dead, under short-lived backends", both(running(_dead_ready), running(_short_lives))
        ),
        Scenario(
            "no backend lives while its hosts cannot write", running(_no_backend_and_no_reports),
            work=_LONG
        ),
        Scenario("the bucket refuses its hosts for 20 min", running(_refused), work=_LONG),
        Scenario(
            "started late, and heard later",
            both(at(_S.PROVISIONING, _unreachable), at(_S.PREPARING, _started_late))
        ),
        Scenario("a host never answers", at(_S.PROVISIONING, _never_answers)),
        Scenario("an agent dies before the start is reported", at(_S.PREPARING, _agent_killed, then=20.0)),
        Scenario(
            "a host is cut off before the start is reported",
            at(_S.PREPARING, _cut_off_early, then=20.0)
        ),
        Scenario("its second host dies", running(_dies_for_ever)),
        Scenario(
            "its second host dies, under short-lived backends",
            both(running(_dies_for_ever), running(_short_lives))
        ),
        Scenario("its end is forged", running(_forged)),
        Scenario("its end is written over", running(_overwritten)),
        Scenario("dead, and its old reports are put back", running(_hidden)),
        Scenario(
            "dead, and its old reports are put back, under short-lived backends",
            both(running(_hidden), running(_short_lives))
        ),
        Scenario(
            "a host ends first, and its old report is put back", running(_ends_by_turns, then=70.0),
            late=_FAILED, budget=3.0,  # which pays for no second attempt
        ),
        Scenario("two slices in a row are bad", _bad_machines, work=Work(120, contract=True)),
        Scenario("dead, and the cloud is away", running(_dies_unseen)),
        Scenario("a machine makes wrong numbers", _bad_machine, work=Work(120, contract=True)),
        Scenario(
            "its numbers are wrong after a checkpoint", _bad_machine, work=Work(17, one_saves=True)
        ),
        Scenario("its numbers are wrong before its first checkpoint", _bad_machine, work=Work(8)),
        Scenario("wrong numbers, without a replay", _bad_machine, work=Work(120, contract=False)),
        Scenario("every machine is bad", _all_bad, ends=_FAILED, work=Work(120, contract=True)),
        Scenario("the maths breaks", nothing, ends=_FAILED, work=Work(30, contract=False, maths=8)),
        Scenario("a suspected machine is refused", _suspected),
        Scenario(
            "wrong numbers, and its hosts cannot be reached", both(_bad_machine, running(_deaf)),
            work=Work(120, contract=False)
        ),
        Scenario("cut off, and its deletion fails unseen", running(_cut_off)),
        Scenario("missed twice, minutes apart", running(_missed_twice), work=Work(120)),
        Scenario("lists leave it out", running(_left_out), work=Work(400)),
        Scenario(
            "lists show it in part", running(_torn), work=Work(400),
            more={"tpu": EAST | {"slices": 2}}
        ),
        Scenario(
            "deleted by a person, and lists had left it out", running(_deleted_unseen),
            work=Work(400)
        ),
        Scenario("hangs", running(_hangs)),
        Scenario("a host ends, and the others wait for it", running(_half_done)),
        Scenario(
            "frozen, and thaws", running(_frozen), work=Work(60, contract=False),
            more={"recovery": {"stall": "1m"}}
        ),
        Scenario("crashes once", running(_crashes)),
        Scenario("a host dies", running(lambda p, m: SliceFaults(p.world).kill_host(m))),
        Scenario(
            "a host dies, and its peers end at once", running(_peers_end),
            more={"recovery": {"failures": 0}}
        ),
        Scenario(
            "cancelled early", user(_S.PROVISIONING, lambda a: a.cancel(JOB)), ends=_CANCELLED,
            late=_SUCCEEDED
        ),
        Scenario(
            "cancelled between a look and a request", _cancelled_meanwhile, ends=_CANCELLED,
            late=_SUCCEEDED, backends=2
        ),
        Scenario(
            "cancelled while it is prepared", user(_S.PREPARING, lambda a: a.cancel(JOB)),
            ends=_CANCELLED, late=_SUCCEEDED
        ),
        Scenario(
            "cancelled while running", user(_S.RUNNING, lambda a: a.cancel(JOB)), ends=_CANCELLED,
            late=_SUCCEEDED
        ),
        Scenario(
            "held, and resumed",
            both(user(_S.RUNNING, lambda a: a.cancel(JOB)), user(_S.HOLDING, lambda a: a.resume(JOB))),
            late=_CANCELLED
        ),
        Scenario(
            "deleted while running", user(_S.RUNNING, lambda a: a.delete(JOB)), ends=_CANCELLED,
            late=_SUCCEEDED
        ),
        Scenario("done, and then cancelled", running(_done_and_then(lambda a: a.cancel(JOB)))),
        Scenario("done, and then deleted", running(_done_and_then(lambda a: a.delete(JOB)))),
        Scenario("two backends, and a slow cloud", _both_look, backends=2),
        Scenario("replies are lost", _replies_lost),
        Scenario("two backends", running(_preempted, then=70.0), backends=2),
        Scenario("the store is away", running(_store_away)),
        Scenario("the storage is away", running(_bucket_away)),
        Scenario("orphans", running(_orphan)),
        Scenario("the budget is used up", nothing, ends=_FAILED, work=_LONG, budget=3.0),
        Scenario(
            "preempted, and little money is left", running(_preempted, then=150.0), ends=_FAILED,
            work=_LONG, budget=2.4
        ),
        Scenario(
            "two slices are paid from one budget", running(_preempted, then=150.0), ends=_FAILED,
            work=_LONG, budget=5.0
        ),
        Scenario(
            "the budget is used up, and is raised in time",
            user(_S.HOLDING, lambda a: a.resume(JOB, budget=80.0)), late=_FAILED, work=Work(120),
            budget=3.0
        ),
        Scenario("data is brought first", nothing, data=True),
        Scenario("data is changed on the way", _source_changes, data=True),
        Scenario(
            "its checkpoint follows it into another region",
            running(_preempted_and_full, then=150.0), work=_LONG, more={"tpu": TWO_REGIONS}
        ),
        Scenario("a sweep, two at once", queue.sweep, more=queue.SWEEP),
        Scenario(
            "a sweep, under two backends", queue.both_look_at_it, more=queue.SWEEP, backends=2
        ),
        Scenario(
            "a sweep is cancelled", queue.sweep_is_cancelled, more=queue.SWEEP, ends=_CANCELLED,
            late=_SUCCEEDED
        ),
        Scenario("a sweep after a sweep", queue.next_sweep, more={"array": 5}),
        Scenario(
            "requeued with a budget, and handed on", queue.requeued_twice, ends=_FAILED, work=_LONG,
            budget=5.0, queue=queue.ONE_AT_A_TIME,
        ),
        Scenario("a sweep is held", queue.group_is_held, more=queue.SWEEP),
        Scenario("others wait", queue.others_wait, queue=queue.ONE_AT_A_TIME),
        Scenario("kept, and given back", nothing, queue=queue.KEPT),
        Scenario("kept, and handed on", queue.comes_late, queue=queue.KEPT, backends=2),
        Scenario("kept, while another waits", queue.another_waits, queue=queue.KEPT_ALONE),
        Scenario(
            "others wait, under two backends", queue.others_wait, queue=queue.ONE_AT_A_TIME,
            backends=2
        ),
        Scenario("in several shares", queue.in_several_shares, queue=queue.MEMBERS),
        Scenario("the last is first", queue.the_last_is_first, queue=queue.ONE_AT_A_TIME),
        Scenario("held, and released", queue.held_and_released),
        Scenario(
            "others wait for it, and it fails", running(queue.one_fails), ends=_FAILED,
            late=_SUCCEEDED
        ),
        Scenario("one after another", queue.one_after_another),
        Scenario(
            "small ones pass a big one", queue.small_ones_pass, more=queue.SMALL,
            queue=QueueSettings(quota={"us-central2-b/v4/spot": 16})
        ),
        Scenario("its slice ends as planned", nothing, work=Work(100), more=_ENDING),
        Scenario(
            "its slice ends as planned, and no other follows", nothing, work=Work(100), ends=_FAILED,
            more={"tpu": _TEN_MINUTES}
        ),
        Scenario(
            "its slice ends while no backend lives", running(_no_backend_at_its_end),
            work=Work(100), more=_ENDING
        ),
        *(
            Scenario(
                name, queue.one_gives_way, more={**queue.SMALL, "priority": "low"},
                queue=QueueSettings(quota={"us-central2-b/v4/spot": 16}), backends=backends
            )
            for name, backends in (("gives way", 1), ("gives way, under two backends", 2))
        ),
        Scenario("a deadline leaves no room", nothing, more=_due(3900)),
        Scenario(
            "far ahead of its deadline", running(_preempted_without_spot, then=150.0),
            work=Work(60, contract=True), more=_due(30_000)
        ),
        Scenario(
            "spot is refused at first", _no_spot, work=Work(400, contract=True), more=_due(30_000)
        ),
        Scenario("a race, and one place is first", race.one_is_first, more=race.THREE),
        Scenario("a race for two of three places", race.one_is_first, more=race.TWO),
        Scenario("a race, and one place is full", race.one_is_full, more=race.THREE),
        Scenario(
            "a race within a limit of chips", race.one_is_first, more=race.THREE,
            queue=race.FEW_CHIPS
        ),
        Scenario(
            "a race of which two are ready at once", race.two_at_once, more=race.THREE, backends=2
        ),
        Scenario("a race whose loser another job gets", race.another_waits, more=race.THREE),
        Scenario("a race whose winner is refused", race.refused_machines, more=race.THREE),
        Scenario("a race whose first request fails", race.serving_is_refused, more=race.THREE),
        Scenario(
            "a race is cancelled", race.cancelled, more=race.THREE, ends=_CANCELLED, late=_SUCCEEDED
        ),
        Scenario(
            "a race whose winner is preempted early", race.preempted_while_prepared, more=race.THREE
        ),
        Scenario("data may not be copied", _copy_refused, ends=_FAILED, late=_SUCCEEDED, data=True),
    )
}  # fmt: skip
