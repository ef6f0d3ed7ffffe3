"""People who share a queue: its settings, and the users who submit sweeps, hold, move and cancel jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.simulation.sim import EPOCH
from tests.support.simulation.users import ASKED_IN_VAIN, TWO_REGIONS, VERBS, User, spec
from tpujob.domain.access import BACKEND, Principal, Role
from tpujob.domain.capacity.settings import ANYTHING, OwnerLimits, QueueSettings
from tpujob.domain.members import Member as Listed
from tpujob.domain.model import Job
from tpujob.errors import BadRequest, Forbidden

if TYPE_CHECKING:
    from tests.support.simulation.play import Play

MOST = 4  #: people who share the queue
SHARES = ("", "vision", "speech")
#: seconds of work in a job of theirs
LENGTHS = (60, 60, 120, 300)
#: seconds after the last fault within which their queue is served
SERVED = 24 * 3600.0


def people(rate: float) -> int:
    return math.ceil(rate * MOST)


def settings(random: Random) -> QueueSettings:
    """Return the queue settings that the seed's context has."""
    pick = random.choice
    running, chips = pick([None, 1, 2, 4]), pick([None, None, 16, 32])
    by_type = {"v4-16": OwnerLimits(running=pick([1, 2]))} if random.random() < 0.3 else {}
    pools = ["us-central2-b/v4/spot", "us-east5-a/v5p/spot", "us-east5-b/v5p/spot"]
    quota = {pool: pick([16, 24, 48]) for pool in pools if random.random() < 0.3}
    hand_on = pick(("owner", "owner", "lab", "never"))
    return replace(
        ANYTHING,
        weights={"vision": 2.0, "speech": 1.0},
        limits=OwnerLimits(running=running, chips=chips, queued=pick([None, 40])),
        by_type=by_type,
        high=frozenset(pick([(), ("lab1",)])),
        quota=quota,
        hand_on=hand_on,
        keep=0.0 if hand_on == "never" else pick((0.0, 0.0, 300.0, 1200.0)),
        members=pick(({}, {}, {"vision": {"lab1", "lab2"}})),
        give_way=random.random() < 0.8,
    )


#: their possible commands, with the weight of each
MEDDLES: Mapping[str, float] = {
    "hold": 3, "release": 3, "top": 2, "requeue": 1, "cancel": 2, "cancel --release": 1, "resume": 5,
    "delete": 1, "clean": 0.5,
}  # fmt: skip


class Member(User):
    """A person with several jobs and sweeps."""

    in_vain = (*ASKED_IN_VAIN, BadRequest, Forbidden)
    meddles = MEDDLES

    def __init__(self, play: Play, number: int) -> None:
        super().__init__(play, number)
        self.name = f"lab{number}"
        self.who = Principal(f"lab:{number}", self.name, Role.SUBMITTER)
        self.random = play.sim.random(f"lab-{number}")
        self.id = self.who.id  #: of their jobs
        self.done, self.leaves = False, False

    def live(self) -> None:
        sim, random, hours = self.play.sim, self.random, self.play.profile.hours
        sim.sleep(random.uniform(0, hours * 3600 / 3))
        for k in range(random.randint(1, 2 if hours < 10 else 3)):
            self._submit(k)
            sim.sleep(random.expovariate(1 / 600))
        for _ in range(random.randint(0, 8)):
            sim.sleep(random.expovariate(1 / 1200))
            if self.play.effects.calm or self.leaves:
                break
            self._meddle()
        while any(member.leaves for member in self.play.members):
            sim.sleep(60)
        sim.sleep(max(0.0, EPOCH + hours * 3600 - sim.now) + 1)
        for job in [j for j in self._own() if j.held_by and not j.state.final]:
            self._ask("release", job)
        self.done = True

    def leave(self, heir: Member) -> None:
        """Be removed by an admin at some time: the heir gets their jobs."""
        sim, members = self.play.sim, self.play.real.members
        for who in (self.who, heir.who):
            members.change(who.name, lambda _, who=who: Listed(who.name, Role.SUBMITTER, who.id))
        sim.sleep(self.random.uniform(0.4, 0.9) * self.play.profile.hours * 3600)
        self.leaves, self.who = True, BACKEND
        sim.note(f"an admin removes {self.name}, and {heir.name} gets their jobs")
        while self._own():  # a record that cannot be read is left out
            self.insist(lambda api: api.remove_member(self.name, to=heir.name))
            sim.sleep(60)
        self.leaves = False

    def _own(self) -> list[Job]:
        return [j for j in self.play.monitor.jobs.values() if j.owner == self.id]

    # Submit -----------------------------------------------------------------------------------------------------------

    def _submit(self, k: int) -> None:
        document = self._wanted(k)
        self.vary(document)
        key = f"lab-{self.number}-{k}"
        self.play.sim.note(f"{self.who.name} submits {document['name']}")
        self.insist(lambda api: api.create(document, idempotency_key=key))

    def _wanted(self, k: int) -> dict[str, Any]:
        random, pick = self.random, self.random.choice
        document: dict[str, Any] = spec(self.number, random)
        document |= {"name": f"lab{self.number}-{k}", "hold": "1m"}
        document |= {"priority": pick(["high", "normal", "normal", "low"]), "share": pick(SHARES)}
        document |= {"time": pick(["2m", "10m", "1h"])} if random.random() < 0.5 else {}
        document |= {"max_time": pick(["5m", "2h"])} if random.random() < 0.2 else {}
        document |= {"start": "held"} if random.random() < 0.15 else {}
        if random.random() < 0.2:
            at = self.play.sim.now + random.uniform(60, 3600)
            document["not_before"] = datetime.fromtimestamp(at, UTC).isoformat()
        size = self._group(document) if random.random() < 0.6 else 0
        if not size and random.random() < 0.2:
            tpu = {"type": "v4-32", "zones": ["us-central2-b"], "pricing": "spot"}
            document["tpu"] = tpu
        elif random.random() < 0.2:
            document["tpu"] = TWO_REGIONS
        jobs = [j for j in self.play.monitor.jobs.values() if not j.group]
        if jobs and random.random() < 0.5:
            document["after"] = [self._edge(pick(jobs), size)]
        return document

    def _edge(self, other: Job, size: int) -> dict[str, Any]:
        random = self.random
        condition = random.choice(["success", "success", "end", "failure", "start"])
        by_element = other.group_size == size and random.random() < 0.7
        return {"job": other.id, "on": condition} | ({"each": True} if size and by_element else {})

    def _group(self, document: dict[str, Any]) -> int:
        """Make it an array or a sweep; return how many elements it has."""
        random = self.random
        small = self.play.profile.hours < 10
        size = random.choice([5, 6] if small else [5, 6, 8, 8, 12, 30])
        document["recovery"] |= {"failures": 3}
        at_once = random.choice([None, 1, 2, 3])
        if random.random() < 0.5:
            document["array"] = {"count": size} | ({"at_once": at_once} if at_once else {})
            return size
        document["matrix"] = {"lr": [0.1, 0.01], "seed": [*range(size // 2)]}
        document["run"] |= {"command": "python train.py --lr {lr} --seed {seed}"}
        document |= {"at_once": at_once} if at_once else {}
        if random.random() < 0.3:
            document["exclude"] = [{"lr": 0.1, "seed": 1}]
            return size // 2 * 2 - 1
        return size // 2 * 2

    # Meddle -----------------------------------------------------------------------------------------------------------

    def _meddle(self) -> None:
        own = self._own()
        groups = [job for job in own if job.spec.is_group]
        if not own:
            return
        job = self.random.choice(groups if groups and self.random.random() < 0.4 else own)
        self._ask(self.random.choices([*self.meddles], [*self.meddles.values()])[0], job)

    def _ask(self, word: str, job: Job) -> None:
        self.play.sim.note(f"{self.who.name} wants {word} {job.id}")
        self.insist(lambda api: VERBS[word](api, job.id))
