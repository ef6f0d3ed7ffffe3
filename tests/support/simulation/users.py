"""People: they submit, cancel, resume, delete and clean through whatever backend answers, and insist if none does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.simulation.monitor import CANARY
from tests.support.world import Killed
from tpujob.domain.access import BACKEND, Principal, Role
from tpujob.errors import BadSpec, IllegalInState, NotFound, TpujobError
from tpujob.service.jobs import Jobs

if TYPE_CHECKING:
    from tests.support.simulation.backend import Backend
    from tests.support.simulation.play import Play

#: errors that every backend would give; BadSpec: a budget that pays for no slice
ASKED_IN_VAIN = (NotFound, IllegalInState, BadSpec)


def spec(number: int, random: Random) -> dict[str, Any]:
    """Return the job file of any program, with a pattern for its output if it does not follow the workload contract."""
    places: list[dict[str, object]] = [
        {"type": "v4-16", "zones": ["us-central2-b"]},
        {"type": "v5p-16", "zones": ["us-east5-a", "us-east5-b"]},
        {"type": "v5p-16", "zones": ["us-east5-b"]},
    ]
    return {
        "name": f"job-{number}",
        "tpu": {**random.choice(places), "pricing": "spot"},
        "run": {"command": "python train.py", "env": {"TOKEN": CANARY}},
        "watch": {"nonfinite": r"step (?P<step>\d+).*loss=nan"},
        "hold": random.choice(["1m", "10m", "15m"]),
        "recovery": {
            "failures": random.choice([0, 3, 3, 10]),
            "stall": random.choice(["2m", "2m", "5m", "15m"]),
            "on_bad_host": random.choice(["swap", "swap", "release"]),
        },
    }


def due(at: float, tpu: Mapping[str, object], time: str = "30m") -> dict[str, object]:
    """Return the parts of the job file of a program that should end by that time."""
    finish_by = datetime.fromtimestamp(at, UTC).isoformat()
    return {"tpu": {**tpu, "pricing": ["spot", "on-demand"]}, "time": time, "finish_by": finish_by}


#: in two regions, each with its own bucket
TWO_REGIONS = {
    "type": ["v5p-16", "v4-16"],
    "zones": ["us-east5-a", "us-central2-b"],
    "pricing": "spot",
}


#: the only terms that end as planned whose price is known in one of the zones
FLEX = {"type": "v6e-16", "zones": ["us-east5-a", "us-east5-b"], "pricing": "flex-start"}

#: the commands of users, by name
VERBS: Mapping[str, Callable[[Jobs, str], object]] = {
    "hold": lambda api, job: api.hold(job),
    "release": lambda api, job: api.release(job),
    "top": lambda api, job: api.top(job),
    "requeue": lambda api, job: api.requeue(job),
    "cancel": lambda api, job: api.cancel(job),
    "cancel --release": lambda api, job: api.cancel(job, release=True),
    "resume": lambda api, job: api.resume(job),
    "delete": lambda api, job: api.delete(job),
    "clean": lambda api, job: api.clean(job, checkpoints=True),
}
#: what a person with one job may ask for, with the weight of each
MEDDLES: Mapping[str, float] = {
    "cancel": 4, "cancel --release": 1, "resume": 6, "delete": 1, "clean": 0.3,
}  # fmt: skip


class User:
    """A person with one job, who submits it at some time, and perhaps sends commands to it."""

    meddles = MEDDLES
    in_vain: tuple[type[TpujobError], ...] = ASKED_IN_VAIN

    def __init__(self, play: Play, number: int) -> None:
        """Give the user a separate name where users share the queue: limits hold for each owner."""
        self.play, self.number = play, number
        self.who = BACKEND
        if play.profile["lab"]:
            self.who = Principal(f"user:{number}", f"user{number}", Role.SUBMITTER)
        self.random = play.sim.random(f"user-{number}")
        self.job_id = ""

    def live(self) -> None:
        hours = self.play.profile.hours
        self.play.sim.sleep(self.random.uniform(0, hours * 3600 / 3))
        document = spec(self.number, self.random)
        if self.play.profile["lab"] and self.random.random() < 0.3:
            document["tpu"] = TWO_REGIONS
        if self.play.profile["lab"]:  # long jobs, of which some give way to those of the lab
            of_priority = self.play.sim.random(f"priority of {self.number}")
            document["priority"] = of_priority.choice(["normal", "low", "low"])
        self.vary(document)
        key = f"key-{self.number}"
        view = self.insist(lambda api: api.create(document, idempotency_key=key))
        self.job_id = view["id"] if view else "refused"  # a budget pays for no slice
        if view is None or self.random.random() < 0.3:
            return
        for _ in range(self.random.randint(0, 5)):
            self.play.sim.sleep(self.random.expovariate(1 / 1800))
            if self.play.effects.calm:
                return
            self._meddle()

    def vary(self, document: dict[str, Any]) -> None:
        """Give some jobs a budget, some several TPU slices, and some a runtime version."""
        random, profile = self.play.sim.random(f"{document['name']}: more"), self.play.profile
        if random.random() < profile["budgets"]:
            document["budget"] = {"usd": round(math.exp(random.uniform(-0.2, 4.6)), 2)}
        if random.random() < profile["multislice"]:
            document["tpu"] = document["tpu"] | {"slices": 2}
        if random.random() < profile["runtimes"] and isinstance(document["tpu"]["type"], str):
            document["tpu"] = document["tpu"] | {"runtime_version": "tpu-ubuntu2204-base"}
        if random.random() < profile["races"] and len(document["tpu"]["zones"]) > 1:
            document["tpu"] = document["tpu"] | {"race": random.choice([2, 3])}
        if random.random() < profile["deadlines"]:
            document |= due(self.play.sim.now + random.uniform(1, 20) * 3600, document["tpu"])

        if random.random() < profile["flex_start"]:
            slices = {"slices": 2} if document["tpu"].get("slices") else {}
            run_for = random.choice(("10m", "1h", "4h"))
            document["tpu"] = FLEX | slices | {"run_for": run_for}
            document["recovery"] |= {"planned_ends": random.choice((0, 1, 10))}

    def _meddle(self) -> None:
        word = self.random.choices([*self.meddles], [*self.meddles.values()])[0]
        self.play.sim.note(f"user wants {word} {self.job_id}")
        self.insist(lambda api: VERBS[word](api, self.job_id))

    def insist(self, verb: Callable[[Jobs], object]) -> dict[str, str] | None:
        """Repeat a call until a backend answers. A call ends with the backend that carries it out."""
        while True:
            backend = self.random.choice(self.play.backends)
            if backend.process.alive and backend.process.paused_until <= self.play.sim.now:
                answers: list[Any] = []

                def call(backend=backend, answers=answers) -> None:
                    try:
                        answers.append(verb(self._api(backend)))
                    except self.in_vain:
                        answers.append(None)
                    except (TpujobError, Killed):
                        pass

                self.play.sim.spawn(call, backend.process)
                for _ in range(40):
                    self.play.sim.sleep(1.0)
                    if answers:
                        return answers[0]
            self.play.sim.sleep(self.random.uniform(1, 60))

    def _api(self, backend: Backend) -> Jobs:
        return Jobs(backend.api.parts, self.who)
