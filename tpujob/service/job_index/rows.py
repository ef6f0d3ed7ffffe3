"""A job as a row of a list: the same facts as in its view, in few bytes. Pure."""

import json
from itertools import islice

from tpujob.api import CommandView, JobRow, NextView
from tpujob.domain import pace
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.money import ledger
from tpujob.domain.progress import job_progress
from tpujob.domain.text import within
from tpujob.service import next_step
from tpujob.service.job_index.query import IndexedJob
from tpujob.service.money import budgets
from tpujob.service.runtime_info import RuntimeInfo
from tpujob.service.views import hardware, job_facts, shown_speed, speed

#: bytes of a row as JSON, at most
MAX_ROW = 1500
#: bytes that each text of a row may have; a third of that where a row would be too long otherwise
_ROOM = {"name": 80, "user": 80, "why": 300, "trouble": 160, "next": 220, "does": 80, "word": 60}
_COMMANDS, _SLICES, _WARNINGS, _PARAMS, _TAGS, _METRICS = 2, 3, 2, 6, 4, 6  #: of a row, at most


def listed(job: Job) -> IndexedJob:
    """Return the facts that a list needs of a job."""
    attempt, shown = job.attempt, hardware(job)
    billed = ledger.rows(job.slices)
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
        text="\n".join((job.id, job.name, job.user, job.note, *job.tags)).casefold(),
        used=ledger.cost(row for row in billed if row.gone is not None),
        billed=tuple(row for row in billed if row.gone is None),
        step=has.step,
        loss=has.loss,
        left=pace.seconds_left(has, speed(job, has, None)),
        ended_at=(job.finished_at or job.state_since) if job.state.final else 0.0,
        group=int(job.group or 0),
        is_group=job.spec.is_group,
        tags=job.tags,
    )


def job_row(job: Job, runtime: RuntimeInfo, now: float, *, mine: bool) -> JobRow:
    """Return a row of at most `MAX_ROW` bytes of JSON, with JSON types only."""
    row = _row(job, runtime, now, mine, 1)
    return row if size(row) <= MAX_ROW else _row(job, runtime, now, mine, 3)


def size(row: JobRow) -> int:
    return len(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode())


def _row(job: Job, runtime: RuntimeInfo, now: float, mine: bool, part: int) -> JobRow:
    def cut(text: str, kind: str = "word") -> str:
        return within(text, _ROOM[kind] // part)

    has = job_progress(job, runtime.progress)
    facts = job_facts(job, runtime, now, has)
    rate = shown_speed(job, has, runtime.moved_at)
    coming = next_step.what_next(job, has, runtime.wait, now, runtime.place)
    why = _failure(job) or next_step.why(job, runtime.wait, runtime.unpaid, now, runtime.place)
    warned = [str(has.nonfinite)] if has.nonfinite and job.cause is not Cause.NONFINITE else []
    warned += [
        budget.get("text", "")
        for budget in budgets.views(job, runtime.funds, now)
        if budget["warned"] and not job.state.final
    ]
    return {
        **facts,
        "name": cut(job.name, "name"),
        "user": cut(job.user, "user"),
        "trouble": cut(facts["trouble"], "trouble"),
        "type": cut(facts["type"]),
        "zone": cut(facts["zone"]),
        "host0_ip": cut(facts["host0_ip"]),
        "condemned": [cut(name) for name in facts["condemned"][:_SLICES]],
        "candidates": [cut(name) for name in facts["candidates"][:_SLICES]],
        "phase": cut(facts["phase"]),
        "note": cut(job.note, "does"),
        "tags": [*job.tags[:_TAGS]],
        "mine": mine,
        "why": cut(why, "why"),
        "next": NextView(
            action=coming["action"],
            at=coming["at"],
            text=cut(coming["text"], "next"),
            commands=[
                CommandView(command=cut(command["command"]), does=cut(command["does"], "does"))
                for command in coming["commands"][:_COMMANDS]
            ],
        ),
        "last_error": job.state is State.SUCCEEDED and bool(job.attempt and job.attempt.last_error),
        "preemptions": sum(past.cause is Cause.PREEMPTED for past in job.attempts),
        "steps_per_s": rate,
        "left_s": pace.seconds_left(has, rate),
        "warned": [cut(text, "next") for text in warned[:_WARNINGS]],
        "metrics": {cut(name): value for name, value in islice(has.metrics.items(), _METRICS)},
        "params": {cut(name): cut(value) for name, value in islice(job.params.items(), _PARAMS)},
    }


def _failure(job: Job) -> str:
    """Return the end of the attempt that made the job fail, or succeed with an error in its last lines; empty: another
    end, or none."""
    failed = State.FAILED in (job.state, job.next_state)
    attempt = job.attempt
    if State.SUCCEEDED in (job.state, job.next_state) and attempt and attempt.last_error:
        return attempt.message
    return attempt.message if failed and attempt and attempt.cause is job.cause is not None else ""
