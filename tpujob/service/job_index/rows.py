"""A job as a row of a list: the same facts as in its view, in few bytes. Pure."""

import json

from tpujob.api import CommandView, JobRow, NextView
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.money import bill, free, ledger, pace, usd_of_job
from tpujob.domain.progress import job_progress
from tpujob.domain.text import rfc3339, within
from tpujob.service import next_step
from tpujob.service.job_index.query import IndexedJob
from tpujob.service.money import budgets
from tpujob.service.runtime_info import RuntimeInfo
from tpujob.service.views import billed_now, hardware, speed

#: bytes of a row as JSON, at most
MOST = 1500
#: bytes that each text of a row may have; a third of that where a row would be too long otherwise
_ROOM = {"name": 80, "user": 80, "why": 300, "trouble": 160, "next": 220, "does": 80, "word": 60}
_COMMANDS, _SLICES, _WARNINGS = 2, 3, 2  #: of a row, at most


def listed(job: Job) -> IndexedJob:
    """What a list asks of it, as far as its record knows."""
    attempt, shown = job.attempt, hardware(job)
    spent, billed = _money(job)
    has = job_progress(job)
    return IndexedJob(
        number=int(job.id),
        name=job.name,
        user=job.user,
        owner=job.owner,
        state=job.state,
        type=shown.facts.type,
        zone=shown.zone,
        cause=job.cause or "",
        attempts=attempt.number if attempt else 0,
        created_at=job.created_at,
        text=f"{job.id}\n{job.name}\n{job.user}".casefold(),
        used=spent,
        billed=billed,
        step=has.step,
        loss=has.loss,
        left=pace.seconds_left(has, speed(job, has, None)),
        ended_at=(job.finished_at or job.state_since) if job.state.final else 0.0,
    )


def _money(job: Job) -> tuple[int | None, tuple[tuple[int, int], ...]]:
    """Micro-dollars of the slices that are not billed any more, and rate and beginning of the others."""
    paid = [one for one in job.slices if not free(job, one)]
    billed: list[tuple[int, int]] = []
    used = 0
    for one in paid:
        rate, gone = ledger.rate(one), one.gone_at is not None
        if gone or one.ready_at is None:
            cost = bill(one, one.gone_at or 0.0).most
            if cost is None:
                return None, ()
            used += cost
        elif rate is None:
            return None, ()
        else:
            billed.append((rate, ledger.moment(one.ready_at)))
    return used, tuple(billed)


def job_row(job: Job, known: RuntimeInfo, now: float, *, mine: bool) -> JobRow:
    """`MOST` bytes of JSON at most; of nothing but what JSON has."""
    row = _row(job, known, now, mine, 1)
    return row if size(row) <= MOST else _row(job, known, now, mine, 3)


def size(row: JobRow) -> int:
    return len(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode())


def _row(job: Job, known: RuntimeInfo, now: float, mine: bool, part: int) -> JobRow:
    def cut(text: str, what: str = "word") -> str:
        return within(text, _ROOM[what] // part)

    shown, attempt, serving = hardware(job), job.attempt, job.slice
    has = job_progress(job, known.progress)
    rate = speed(job, has, known.moved_at)
    coming = next_step.what_next(job, has, known.wait, now)
    warned = [one.get("said", "") for one in budgets.views(job, known.funds, now) if one["warned"]]
    return JobRow(
        id=job.id,
        name=cut(job.name, "name"),
        user=cut(job.user, "user"),
        mine=mine,
        state=str(job.state),
        wish=str(job.wish),
        why=cut(_failure(job) or next_step.why(job, known.wait, known.unpaid, now), "why"),
        next=NextView(
            action=coming["action"],
            at=coming["at"],
            text=cut(coming["text"], "next"),
            commands=[
                CommandView(command=cut(one["command"]), does=cut(one["does"], "does"))
                for one in coming["commands"][:_COMMANDS]
            ],
        ),
        trouble="" if job.state.final else cut(known.trouble, "trouble"),
        outcome=job.outcome and str(job.outcome),
        cause=job.cause and str(job.cause),
        type=cut(shown.facts.type),
        tpu_slices=shown.tpu_slices,
        chips=shown.chips,
        hosts=shown.hosts,
        zone=cut(shown.zone),
        pricing=job.spec.tpu.pricing,
        host0_ip=cut(serving.endpoints[0].address) if serving and serving.endpoints else "",
        usd_per_hour=billed_now(job),
        usd_spent=usd_of_job(job, now),
        condemned=[cut(one.name) for one in job.condemned[:_SLICES]],
        attempt=attempt.number if attempt else 0,
        preemptions=sum(one.cause is Cause.PREEMPTED for one in job.attempts),
        phase=cut(has.phase) if job.state is State.RUNNING else "",
        step=has.step,
        steps=has.steps,
        steps_per_s=rate,
        left_s=pace.seconds_left(has, rate),
        loss=has.loss,
        checkpoint=has.checkpoint,
        version=job.version,
        created_at=rfc3339(job.created_at),
        state_since=rfc3339(job.state_since),
        finished_at=None if job.finished_at is None else rfc3339(job.finished_at),
        warned=[] if job.state.final else [cut(one, "next") for one in warned[:_WARNINGS]],
    )


def _failure(job: Job) -> str:
    """What ended the attempt that made the job fail; empty: it has not failed, or no attempt is the reason."""
    failed = State.FAILED in (job.state, job.then)
    attempt = job.attempt
    return attempt.message if failed and attempt and attempt.cause is job.cause is not None else ""
