"""The acts of story scripts: submit jobs, send requests, and wait until a job is in a state."""

from collections.abc import Callable

from tests.support.simulation.machines import Machine
from tests.support.simulation.plans import Work
from tests.support.simulation.play import Play
from tests.support.simulation.sim import Process
from tests.support.simulation.users import spec
from tpujob.api import JobsApi
from tpujob.domain.access import Principal
from tpujob.domain.model import Job
from tpujob.service.jobs import Jobs

EAST = {"type": "v5p-16", "zones": ["us-east5-a", "us-east5-b"], "pricing": "spot"}

Verb = Callable[[JobsApi], object]


def ask(play: Play, verb: Verb, *, user: Principal | None = None) -> None:
    def asked(api: Jobs) -> object:
        return verb(api.acting_for(user) if user else api)

    play.sim.spawn(lambda: play.users[0].insist(asked), Process("user"))


def submit(play: Play, name: str, *, user: Principal | None = None, **fields: object) -> None:
    """Submit another job, of the same user or of `who`."""
    document = spec(2, play.sim.random(name)) | {"name": name, "tpu": EAST, "hold": "1m"} | fields
    ask(play, lambda api: api.create(document, idempotency_key=name), user=user)


def once(
    play: Play, is_so: Callable[[Job], bool], do: Callable[[], object], *, name: str = "job-1"
) -> None:
    """Act once the named job satisfies the condition, unless the job ends before."""

    def watch() -> None:
        while True:
            play.sim.sleep(0.5)
            job = next((j for j in play.monitor.jobs.values() if j.name == name), None)
            if job and is_so(job):
                do()
                return
            if job and job.state.final:
                return

    play.sim.spawn(watch, Process("fate"))


def work_of_all(play: Play, work: Work) -> None:
    play.world.work |= {f"{number:06d}": work for number in range(1, 20)}


def crash_for_good(play: Play, machine: Machine) -> None:
    """Let host 0 end with a bad configuration (78); the other host waits for host 0."""
    for program in machine.running(play.sim.now):
        program.end(play.sim.now + 60, 78) if not program.host else None
