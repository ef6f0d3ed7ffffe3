"""The Slices port over the model of the cloud, at its worst: late, incomplete, refused, lost."""

from collections.abc import Callable, Collection, Sequence

from tests.support.simulation.effects import T
from tests.support.simulation.faults import SliceFaults
from tests.support.simulation.machines import Machine
from tests.support.simulation.world import World
from tpujob.domain.hardware.accelerators import find
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Slice
from tpujob.domain.observations import Absent, SliceSeen, Unknown
from tpujob.emulator.cloud.states import QueuedState
from tpujob.engine.slice_cache import LAG
from tpujob.errors import Refused, Transient
from tpujob.ports import Owned, SliceSurvey


class Cloud:
    def __init__(self, world: World) -> None:
        self.world, self.sim, self.effect = world, world.sim, world.effects
        self.faults = SliceFaults(world)
        self.surveys = world.sim.random("surveys")

    def _call(self, fault: str, name: str, about: str, do: Callable[[], T], timeout: float) -> T:
        """Make a call. `fault`: the fault that loses the call or its reply; empty: the fault of changing calls."""
        before, after = fault or "cloud_before", fault or "cloud_after"
        return self.effect(name, about, do, timeout=timeout, before=before, after=after)

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        try:
            seen = self._call(
                "look_unknown", "look", slice.name, lambda: self._look(slice), timeout
            )
        except Transient as error:
            seen = Unknown(str(error))
        self.world.monitor.looked(slice, seen)
        return seen

    def _look(self, slice: Slice) -> SliceSeen:
        self.world.check_cloud("look")
        now, machine = self.sim.now, self.world.machines.get(slice.name)
        if machine is None or now < machine.listed_at:
            return Absent()
        if machine.absent[0] <= now < machine.absent[1]:
            return Absent()
        # never twice on end: that it is missing at two looks, far enough apart, is what counts as gone
        lags = machine.found and machine.absent[1] + 300 <= now < machine.deleting_at
        if self.effect.hits("look_absent") and lags:
            machine.found, machine.absent = False, (now, now + self.effect.random.uniform(1, 40))
            return Absent()
        machine.found = True
        return self.world.cloud.slices.look(slice)

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        try:
            about = ",".join(zones)
            return self._call("look_unknown", "survey", about, lambda: self._survey(zones), timeout)
        except Transient as error:
            return SliceSurvey({}, dict.fromkeys(zones, str(error)), 1)

    def _survey(self, zones: Collection[str]) -> SliceSurvey:
        """Return a late and incomplete list: without a zone or a slice, or with a slice that lacks a node."""
        self.world.check_cloud("survey")
        hit, chance, lag = self.effect.hits, self.surveys, 0.0
        if hit("survey_lags"):
            lag = chance.uniform(5, LAG - 10)
        at = self.sim.now - lag
        misses, torn = hit("survey_misses"), hit("survey_torn")
        missed = {zone for zone in zones if misses and chance.random() < 0.4}
        machines = [m for m in (*self.world.machines.values(), *self.world.past[-20:]) if m.ours]
        split = {m.name for m in machines if torn and chance.random() < 0.5}
        split |= {m.name for m in machines if m.torn[0] <= at < m.torn[1]}
        listed = self.world.cloud.slices.listed(lag, split)
        seen: dict[str, SliceSeen] = {}
        for machine in machines:
            covered = machine.zone in zones and machine.zone not in missed
            left_out = misses and chance.random() < 0.4
            left_out |= machine.left_out[0] <= at < machine.left_out[1]
            if covered and machine.listed_at <= at and machine.name in listed and not left_out:
                seen[machine.name] = listed[machine.name]
        return SliceSurvey(seen, dict.fromkeys(missed, "503 the zone could not be reached"), 2)

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        self._call("", "create", slice.name, lambda: self._create(slice, job_id), timeout)

    def _create(self, slice: Slice, job_id: str) -> None:
        world, now, fate = self.world, self.sim.now, self.world.fate
        world.check_cloud("create")
        world.monitor.creating(slice, job_id)
        if slice.name in world.machines:
            return
        cause = world.refusal(slice)
        if not cause and world.drawn(world.refusals, "refused", count=True):
            self.sim.note(f"create {slice.name} -> refused for good")
            cause = world.refusals.choice(("PERMISSION", "BAD_SPEC"))
        if cause:
            self.effect.counts.faults += 1
            world.monitor.refused(slice)
            self.sim.note(f"create {slice.name} -> {cause}")
            scope = "region" if cause == "QUOTA" else "zone"
            raise Refused(f"no {slice.type} in {slice.zone}", cause=cause, scope=scope)
        waits = now + (fate.uniform(60, 3600) if world.hit("waits") else 0.0)
        machine = Machine(
            slice.name, slice.zone, job_id, slice.k, find(slice.type).hosts * slice.tpu_slices, now,
            tpu_slices=slice.tpu_slices,
            preemptible=find_pricing(slice.pricing).preemptible,
            nameless=world.hit("nameless"),
            listed_at=now + (fate.uniform(1, 40) if world.hit("late_listing") else 0.0),
            waits_until=waits, creates_in=fate.uniform(5, 240), fails=world.hit("request_fails"),
        )  # fmt: skip
        world.add(machine, slice)
        self.sim.note(f"created {slice.name}")
        self.faults.begin(machine)
        world.monitor.created(machine)

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        self._call("", "delete", slice.name, lambda: self._delete(slice, even_suspending), timeout)

    def _delete(self, slice: Slice, even_suspending: bool) -> None:
        world, now = self.world, self.sim.now
        world.check_cloud("delete")
        world.monitor.deleting(slice)
        machine = world.machines.get(slice.name)
        if machine is None or now >= machine.deleting_at:
            return
        world.cloud.slices.check_deletable(slice, even_suspending=even_suspending)
        if machine.record.state is QueuedState.SUSPENDING:
            world.monitor.forcing(machine)
        self.sim.note(f"deleting {slice.name}")
        if machine.survives:
            machine.survives -= 1
            machine.absent = (now, now + 40.0)
            return
        if world.hit("delete_fails"):
            return  # accepted; the operation fails later, and the slice stays as it is
        machine.deleting_at = now
        for program in machine.running(now):
            program.end(now, -15, "deleted")
        stuck = world.hit("stuck_delete")
        pause = world.fate.uniform(600, 3000) if stuck else world.fate.uniform(3, 90)
        world.cloud.delete(machine, pause)

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        return self._call("", "list", ",".join(zones), lambda: self._list(zones), timeout)

    def _list(self, zones: Sequence[str]) -> list[Owned]:
        self.world.check_cloud("list")
        owned = self.world.cloud.slices.owned(zones)
        return [o for o in owned if self.sim.now >= self.world.machines[o.name].listed_at]
