"""Performs one action under a lease that the caller holds. `follow_up` interprets the result.

Each action may be repeated: an existing slice is adopted, a missing one counts as deleted, a running program is not
started again.
"""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace

from tpujob.domain.actions import (
    Action,
    Copied,
    CreateSlice,
    DeleteSlice,
    Denied,
    Done,
    HandOn,
    Made,
    MakeCopy,
    MakeElements,
    NotYet,
    Result,
    ResumeElements,
    StartProgram,
    StopProgram,
)
from tpujob.domain.capacity import datasets
from tpujob.domain.failures import host_reputation, nonfinite
from tpujob.domain.failures.retry import POLICIES
from tpujob.domain.host import keys, plan
from tpujob.domain.model import Cause, Job, Slice
from tpujob.domain.money.removed import remainder
from tpujob.engine.bundles import Bundles
from tpujob.engine.groups import Groups
from tpujob.engine.job_runtime import JobRuntime
from tpujob.engine.observer import LOOK
from tpujob.errors import HostKeyChanged, NotFound, Refused, StoreError, Transient
from tpujob.ports import Lease, Ports
from tpujob.protocol import paths

log = logging.getLogger(__name__)

#: seconds kept free at the end of a lease for the commit
MARGIN = 5.0
#: seconds for one round of a copy; a call that it began may take as long again
COPYING = 20.0
#: seconds after a job's last round of a copy in which no other job copies to the same place
ALONE = 120.0
#: seconds for the wipe of a slice that is handed on
WIPING = 60.0
#: seconds that a started program gets to report before it is started again, which is safe but not free
START_TIMEOUT = 10.0

_LONG = "cleaning takes long; continuing in a moment"
_PREFLIGHTS = POLICIES[Cause.PREFLIGHT].budget


class Actor:
    def __init__(
        self,
        ports: Ports,
        *,
        report_every: float,
        live: Mapping[str, JobRuntime],
        groups: Groups,
    ) -> None:
        """`live`: what this process remembers of each job, such as when its hosts accepted a start."""
        self.store, self.slices, self.hosts = ports.store, ports.slices, ports.hosts
        self.blobs, self.clock, self.copies = ports.blobs, ports.clock, ports.copies
        self.secrets, self.reputation = ports.secrets, ports.reputation
        self.report_every, self._live, self._groups = report_every, live, groups
        self._bundles = Bundles(ports.store, ports.blobs)
        #: by target of a copy: the job that makes it, and when it last began a round
        self._copying: dict[str, tuple[str, float]] = {}

    def worth_doing(self, job: Job, action: Action | None) -> Action | None:
        """Return the action; None for a start that hosts accepted a moment ago: they are about to report; and for a
        copy that another job makes."""
        if isinstance(action, MakeCopy) and self._copied_by_another(job, action.id):
            return None
        if isinstance(action, StartProgram):
            started = self._live[job.id].started
            if started is not None and self.clock.now() - started < START_TIMEOUT:
                return None
        return action

    def act(self, job: Job, action: Action, lease: Lease) -> Result:
        """Do it, or return why not."""
        try:
            if isinstance(action, MakeCopy):
                return self._copy(job, action, lease)
            if isinstance(action, MakeElements):
                self._left(lease)
                return Made(self._groups.make(job, action.first, action.count))
            self._do(job, action, lease)
        except Refused as error:
            return Denied(Cause(error.cause), str(error), error.scope, error.limit)
        except HostKeyChanged as error:
            return Denied(Cause.BAD_HOST, str(error))
        except (Transient, NotFound) as error:
            log.info("job %s: %s: %s; trying again", job.id, type(action).__name__, error)
            return NotYet(str(error))
        return Done()

    def _left(self, lease: Lease) -> float:
        """Return the seconds for a call under this lease. Raises Transient when none are left: after a pause of this
        process, another one may lead."""
        left = lease.until - self.clock.steady() - MARGIN
        if left <= 0:
            raise Transient("the lease ran out before anything was done")
        return left

    def _do(self, job: Job, action: Action, lease: Lease) -> None:
        match action:
            case CreateSlice(name):
                slice = _named(job, name)
                key = self.hosts.public_key(slice)
                left = self._left(lease)
                user = job.user if job.owner else ""  # without an owner it is not verified
                self.slices.create(slice, job_id=job.id, public_key=key, timeout=left, user=user)
            case DeleteSlice(name, even_suspending):
                slice = _named(job, name)
                left = self._left(lease)
                self.slices.delete(slice, timeout=left, even_suspending=even_suspending)
                self.hosts.forget(slice)
            case HandOn(name, heir):
                if all(attempt.slice != name for attempt in job.attempts):
                    return  # it lost a race: no program has run on it
                slice, others = _serving(job), self.store.get(heir).submitter != job.submitter
                left = self._left(lease) - WIPING
                self.hosts.stop(slice, grace=job.spec.stop_grace, timeout=left)
                self.hosts.wipe(slice, others=others, timeout=min(WIPING, self._left(lease)))
            case StartProgram():
                avoid = self._avoided(job)
                plans = plan.plans(job, report_every=self.report_every, avoid=avoid)
                values = {
                    "secrets": self._secrets(job),
                    "key": self.hosts.key(keys.of_attempt(job)),
                    "cache_key": self.hosts.key(keys.of_caches(job)),
                }
                plans = [replace(host_plan, **values) for host_plan in plans]
                self.hosts.start(_serving(job), plans, timeout=self._left(lease))
                live = self._live[job.id]
                live.turn_to(job)  # an attempt is started before its reports are read
                live.started = self.clock.now()
                live.launched = live.launched or live.started
            case StopProgram(name):
                slice = _named(job, name)
                discard = nonfinite.discards(job, slice.name)
                grace = 0.0 if discard else job.spec.stop_grace
                left = self._left(lease)
                self.hosts.stop(slice, grace=grace, discard=discard, timeout=left)
            case ResumeElements():
                self._groups.resume(job)
            case _:
                self._clean(job, lease)

    def _secrets(self, job: Job) -> dict[str, str]:
        """Return the values that the program gets. Raises Refused for one that is no longer set, or cannot be read."""
        values: dict[str, str] = {}
        for name in job.spec.run.secrets:
            try:
                values[name] = self.secrets.get(job.owner, name)
            except (NotFound, StoreError) as error:
                text = f"{error.message} any more" if isinstance(error, NotFound) else error.message
                cure = f"`tpujob secret set {name}`, then `tpujob resume {job.id}`"
                raise Refused(f"{text}: {cure}", cause=Cause.BAD_SPEC) from None
        return values

    def _copy(self, job: Job, action: MakeCopy, lease: Lease) -> Result:
        copy = datasets.found(job, action.id)
        assert copy is not None, f"job {job.id} makes no copy {action.id}"
        timeout = min(COPYING, self._left(lease))
        if self._copied_by_another(job, action.id):
            raise Transient(f"another job copies {copy.name}")
        self._copying[copy.target] = job.id, self.clock.now()
        progress = self.copies.advance(copy, timeout=timeout)
        if progress.whole:
            self._copying.pop(copy.target, None)
        return Copied(progress)

    def _copied_by_another(self, job: Job, id: str) -> bool:
        """Return whether another job of this backend copies to the same place: both would pay for large objects."""
        copy = datasets.found(job, id)
        other, at = self._copying.get(copy.target, ("", 0.0)) if copy else ("", 0.0)
        return other not in ("", job.id) and 0 <= self.clock.now() - at < ALONE

    def _clean(self, job: Job, lease: Lease) -> None:
        """Remove the objects of a job and what only it has shipped, then its record; of a group, first those of its
        elements. A time-out leaves the record, so that the next tick goes on. Data sets stay: other jobs read them."""
        until = self.clock.steady() + self._left(lease)
        if job.spec.is_group:
            for member in self._groups.members(job):
                with contextlib.suppress(NotFound):  # it was removed by itself
                    element = self.store.get(member.id)
                    self._remove_objects(element, job.wipe_checkpoints, until)
                    self.store.remove(element.id, lease=None, keep=remainder(element))
        self._remove_objects(job, job.wipe_checkpoints, until)
        self._bundles.remove(job)
        self.store.remove(job.id, lease=lease, keep=remainder(job))

    def _remove_objects(self, job: Job, checkpoints: bool, until: float) -> None:
        for workdir in job.workdirs:
            if self.clock.steady() > until:
                raise Transient(_LONG)
            reports = f"{paths.reports_root(workdir)}{paths.job_folder(workdir)}/"
            for blob in (
                *self.blobs.list(reports, timeout=LOOK),
                *self.blobs.list(workdir + "/", timeout=LOOK),
            ):
                is_kept = blob.path.removeprefix(workdir + "/").startswith(paths.LASTING_FOLDERS)
                if checkpoints or not is_kept:
                    if self.clock.steady() > until:
                        raise Transient(_LONG)
                    self.blobs.delete(blob.path, timeout=LOOK)

    def _avoided(self, job: Job) -> dict[str, str]:
        """Return the machines that the program is kept off, with the reasons; none for a job that was refused too many
        of them."""
        most = min(host_reputation.REFUSALS, job.spec.recovery.preflights)
        if job.retries_used.get(_PREFLIGHTS, 0) >= most:
            return {}
        return host_reputation.avoided(self.reputation.suspects(), self.clock.now(), job.owner)


def _named(job: Job, name: str) -> Slice:
    """Return the slice of that name; empty: the serving one."""
    return next(s for s in job.slices if s.name == name) if name else _serving(job)


def _serving(job: Job) -> Slice:
    assert job.slice is not None, f"job {job.id} has no slice in state {job.state}"
    return job.slice
