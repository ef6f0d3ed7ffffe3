"""What a caller sees of one job: its view, its events, and what differs from another job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import cast

from tpujob.api import (
    BestView,
    DiffView,
    ElementView,
    EventView,
    HostView,
    JobView,
    ListQuery,
    RefusedView,
)
from tpujob.domain import access
from tpujob.domain.access import Principal
from tpujob.domain.failures.disclosure import ended_by, in_full, job_in_full
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.model import DesiredState, Job, Slice, State
from tpujob.engine import JobRuntime
from tpujob.errors import DamagedRecord, NotFound
from tpujob.ports import Ports
from tpujob.service import details, next_step, offered_actions
from tpujob.service.backend.queue import QueueReader
from tpujob.service.diff import compare
from tpujob.service.job_index import EventReader, JobIndex
from tpujob.service.money import deadlines
from tpujob.service.runtime_info import RuntimeReader
from tpujob.service.views import event_view, job_view

#: elements of a group that its view names, at most
WORST = 8


class JobReader:
    def __init__(
        self,
        ports: Ports,
        index: JobIndex,
        runtime: RuntimeReader,
        queue: QueueReader,
        live: Mapping[str, JobRuntime],
        trust: Callable[[Slice], str],
        prices: PriceList,
        *,
        emulated: bool,
    ) -> None:
        """`live`: what the reconciler knows of active jobs. `trust`: see `HostReach`."""
        self._ports, self._index, self._runtime, self._queue = ports, index, runtime, queue
        self._live, self._trust, self._prices, self._emulated = live, trust, prices, emulated
        self._events = EventReader(ports.store)

    def events(self, job: Job, caller: Principal, *, after: int, limit: int) -> list[EventView]:
        shown = self._events.read(job, after)[: limit or None]
        if access.sees_all(caller, job.owner):
            shown = [replace(e, text=in_full(e.text, ended_by(job, e.at))) for e in shown]
        return [event_view(e) for e in shown]

    def diff(self, a: Job, b: Job) -> DiffView:
        first, second = (self._runtime.going(job) for job in (a, b))
        live = (first and first.progress, second and second.progress)
        return compare(a, b, self._ports.blobs, self._ports.clock.now(), live=live)

    def view(self, job: Job, caller: Principal) -> JobView:
        now = self._ports.clock.now()
        runtime, private = self._runtime.of(job, now), access.sees_all(caller, job.owner)
        shown = job_in_full(job) if private else job
        view = job_view(
            shown,
            now=now,
            runtime=runtime,
            private=private,
            host_keys=self._trust(job.slice) if job.slice and job.slice.endpoints else "",
        )
        offered, view["refused"] = offered_actions.offered(
            job,
            caller,
            now,
            live=runtime.progress,
            funds=runtime.funds,
            prices=self._prices,
        )
        view["actions"] = offered_actions.emulated(offered) if self._emulated else offered
        if self._emulated:
            view["emulated"] = True
        view["place"] = self._queue.place(job, runtime.place) if runtime.place else None
        view["deadline"] = deadlines.view(job, self._prices, now)
        view["timeline"] = details.spans(shown, now, runtime.progress)
        view["on_hosts"] = self._on_hosts(job, now, private=private)
        for slice_view, slice_ in zip(view["slices"], job.slices, strict=True):
            slice_view["jobs"] = details.slice_jobs(job, slice_, self._ports.store.peek, now)
        if job.group and job.state in (State.FAILED, State.CANCELLED):
            self._ends_with_group(job, view)
        if job.spec.is_group:
            self._index.sum_up(view)
            stopped = {State.FAILED, State.CANCELLED} & view.get("elements", {}).keys()
            if not stopped and job.desired is DesiredState.RUN:
                _refuse_resume(view, "none of its elements failed or was cancelled")
            held = f"held by {job.held_by}; " if job.held_by and not job.state.final else ""
            view["why"] = held + (next_step.elements_text(view) or job.message)
            view["worst"] = self._worst(job, caller)
            view["best"] = self._best(job, caller, private=private)
        return view

    def _ends_with_group(self, job: Job, view: JobView) -> None:
        """Show in an element's view that it can only be resumed with its group, if that was cancelled."""
        with suppress(NotFound, DamagedRecord):
            group = self._ports.store.peek(job.group)
            if group.desired is DesiredState.RUN:
                return
            view["next"] = next_step.after_group(group)
            _refuse_resume(view, f"its group {group.name} was cancelled")

    def _best(self, group: Job, caller: Principal, *, private: bool) -> BestView | None:
        query = ListQuery(group=group.id, order="loss", fields=["name", "loss"], limit=1)
        for row in self._index.page(caller, query)["rows"]:
            if row["loss"] is not None and isfinite(row["loss"]):
                job = self._ports.store.peek(row["id"])
                params = dict(job.params if private else {})
                return BestView(id=job.id, name=job.name, loss=row["loss"], params=params)
        return None

    def _worst(self, group: Job, caller: Principal) -> list[ElementView]:
        """Return the first elements that failed."""
        query = ListQuery(group=group.id, states=[State.FAILED], order="id", reverse=True)
        fields = [*ElementView.__annotations__]
        page = self._index.page(caller, {**query, "fields": fields, "limit": WORST})
        return cast("list[ElementView]", page["rows"])

    def _on_hosts(self, job: Job, now: float, *, private: bool) -> list[HostView]:
        """Return the hosts of the job; to other callers than its owner without suspicions and errors."""
        live = self._live.get(job.id) or JobRuntime()
        has_machines = any(report.physical for report in live.reports)
        suspects = (self._ports.reputation.suspects() if has_machines else ()) if private else None
        silent = {host: since for host, (since, _) in live.dead.items()}
        return details.hosts(job, live.reports, live.heard_at, silent, suspects, now)


def _refuse_resume(view: JobView, why: str) -> None:
    """Refuse `resume` in the view, if it is offered there."""
    offered = view.get("actions", [])
    view["actions"] = [action for action in offered if action["name"] != "resume"]
    if len(view["actions"]) < len(offered):
        refused = RefusedView(name="resume", why=why, forbidden=False)
        view["refused"] = [*view.get("refused", ()), refused]
