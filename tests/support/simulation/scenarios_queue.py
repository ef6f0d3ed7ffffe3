"""Short stories of several jobs in one queue: sweeps, what waits for another job, limits, holds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.simulation.acts import ask, crash_for_good, once, submit, work_of_all
from tests.support.simulation.machines import Machine
from tests.support.simulation.plans import Work
from tests.support.simulation.play import Play
from tpujob.domain.access import Principal, Role
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.service.jobs import Jobs

#: a few minutes
BRIEF = Work(12)
ONE_AT_A_TIME = QueueSettings(limits=OwnerLimits(running=1))
MEMBERS = replace(
    ONE_AT_A_TIME, members={"vision": {"ada"}}, weights={"vision": 2.0, "speech": 1.0}
)
KEPT = QueueSettings(keep=600.0)
KEPT_ALONE = QueueSettings(keep=600.0, limits=OwnerLimits(running=1))
SMALL: Mapping[str, Any] = {
    "tpu": {"type": "v4-16", "zones": ["us-central2-b"], "pricing": "spot"},
    "hand_on": False,
}
SWEEP: Mapping[str, Any] = {"array": {"count": 5, "at_once": 2}}


def sweep(play: Play) -> None:
    work_of_all(play, BRIEF)


def both_look_at_it(play: Play) -> None:
    """Let both backends look at a second sweep just after its elements are made; both know those of the first."""
    sweep(play)
    play.sim.after(30, lambda: submit(play, "next", array=5))

    def look(api: Jobs) -> None:
        groups = [job.id for job in play.monitor.jobs.values() if job.name == "next"]
        for backend in play.backends:
            backend.loop.poke(groups[0])

    once(play, lambda job: True, lambda: play.users[0].insist(look), name="next-4")


def sweep_is_cancelled(play: Play) -> None:
    """Cancel a sweep while two of its elements run, and the others wait."""
    work_of_all(play, BRIEF)
    cancel = lambda: play.users[0].insist(lambda api: api.cancel("job-1"))  # noqa: E731
    once(play, lambda job: bool(job.attempts), cancel, name="job-1-1")


def others_wait(play: Play) -> None:
    """Submit three more jobs of the same owner, who may run one at a time, and two of another owner."""
    work_of_all(play, BRIEF)
    for number in range(2, 5):
        play.sim.after(number, lambda number=number: submit(play, f"other-{number}"))
    ada = Principal("uid:ada", "ada", Role.SUBMITTER)
    for name in ("ada-1", "ada-2"):
        play.sim.after(5, lambda name=name: submit(play, name, user=ada))


def in_several_shares(play: Play) -> None:
    """Submit jobs of one user in two shares, and in one that is closed to them; and a job of another user."""
    work_of_all(play, BRIEF)
    play.sim.after(2, lambda: submit(play, "spoken", share="speech"))
    play.sim.after(3, lambda: submit(play, "seen", share="vision"))
    ada = Principal("uid:ada", "ada", Role.SUBMITTER)
    play.sim.after(5, lambda: submit(play, "ada-1", user=ada, share="vision"))
    play.sim.after(6, lambda: submit(play, "ada-2", user=ada))


def the_last_is_first(play: Play) -> None:
    others_wait(play)
    top = lambda: play.users[0].insist(lambda api: api.top("other-4"))  # noqa: E731
    once(play, lambda job: True, top, name="other-4")


def held_and_released(play: Play) -> None:
    work_of_all(play, BRIEF)
    submit(play, "later", start="held")
    play.sim.after(900, lambda: ask(play, lambda api: api.release("later")))


def requeued_twice(play: Play) -> None:
    """Requeue the first job twice while another one waits, which gets its slice and gives it back soon."""
    for number in (2, 3):
        play.world.work[f"{number:06d}"] = BRIEF
        play.sim.after(600 * (number - 1), lambda number=number: submit(play, f"next-{number}"))
        requeue = lambda: ask(play, lambda api: api.requeue("job-1"))  # noqa: E731
        play.sim.after(600 * (number - 1) + 30, requeue)


def group_is_held(play: Play) -> None:
    """Hold a sweep while two of its elements run, and release it a quarter of an hour later."""
    work_of_all(play, BRIEF)

    def hold() -> None:
        ask(play, lambda api: api.hold("job-1"))
        play.sim.after(900, lambda: ask(play, lambda api: api.release("job-1")))

    once(play, lambda job: bool(job.attempts), hold, name="job-1-1")


def one_fails(play: Play, machine: Machine) -> None:
    """Let two jobs wait for it: one for its success, one for its failure."""
    work_of_all(play, BRIEF)
    submit(play, "next", after=[{"job": "job-1"}])
    submit(play, "otherwise", after=[{"job": "job-1", "on": "failure"}])
    crash_for_good(play, machine)


def one_after_another(play: Play) -> None:
    """Let a job wait for the end of the first job, which takes an hour."""
    work_of_all(play, BRIEF)
    play.world.work["000001"] = Work(360)
    play.sim.after(20, lambda: submit(play, "next", after=[{"job": "job-1", "on": "end"}]))


def next_sweep(play: Play) -> None:
    """Submit another sweep whose elements each wait for the one of their index."""
    work_of_all(play, BRIEF)
    edge = {"job": "job-1", "each": True}
    play.sim.after(30, lambda: submit(play, "next", array=5, after=[edge]))


def small_ones_pass(play: Play) -> None:
    """Let a big job wait for chips; small jobs take what falls free, until the chips are kept for it."""
    work_of_all(play, Work(80))
    small = SMALL["tpu"]
    big = small | {"type": "v4-32"}
    play.sim.after(1, lambda: submit(play, "first", tpu=small, hand_on=False))
    play.sim.after(60, lambda: submit(play, "big", tpu=big))
    play.sim.after(90, lambda: submit(play, "small", tpu=small, array=6, hand_on=False))


def one_gives_way(play: Play) -> None:
    """Let long jobs of low priority hold all chips, while others come: a small one that waits for the first job to have
    run for 20 min, a second one within the hour after that, a third one when both may give way, and then a big one that
    needs all chips, with a small one behind it."""
    work_of_all(play, BRIEF)
    small = SMALL["tpu"]
    for number in (1, 2):
        play.world.work[f"{number:06d}"] = Work(1200)
    play.sim.after(1, lambda: submit(play, "low-2", tpu=small, priority="low", hand_on=False))
    play.sim.after(600, lambda: submit(play, "first", tpu=small, hand_on=False))
    play.sim.after(3600, lambda: submit(play, "second", tpu=small, hand_on=False))
    play.sim.after(7400, lambda: submit(play, "third", tpu=small, hand_on=False))
    big = small | {"type": "v4-32"}
    play.sim.after(11100, lambda: submit(play, "big", tpu=big, priority="high"))
    play.sim.after(11160, lambda: submit(play, "behind", tpu=small, hand_on=False))
    play.sim.after(11220, lambda: submit(play, "low-3", tpu=small, priority="low", hand_on=False))


def comes_late(play: Play) -> None:
    """Submit a job that fits the slice while the slice is kept."""
    work_of_all(play, BRIEF)

    def late(api: Jobs) -> None:
        play.sim.sleep(120)
        submit(play, "late")

    once(play, lambda job: job.hold_until is not None, lambda: play.users[0].insist(late))


def another_waits(play: Play) -> None:
    """Submit a job that does not fit the slice, and that waits as its owner may hold one slice."""
    work_of_all(play, BRIEF)
    play.sim.after(20, lambda: submit(play, "next", tpu=SMALL["tpu"]))
