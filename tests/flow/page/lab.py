"""Jobs of a lab as records: one in each state, and as many as a test wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.callers import ADA, caller
from tests.support.records import accusation
from tpujob.doctor import quota as quotas
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import (
    Attempt,
    Cause,
    DesiredState,
    Endpoint,
    Job,
    Outcome,
    Progress,
    Slice,
    SliceRole,
    State,
)
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import Message, Notification, NotificationKind, Receipt
from tpujob.domain.notifications.rules import ChannelRule
from tpujob.domain.spec import parse
from tpujob.engine.notification_collector import Channel, NotificationSetup
from tpujob.ports import Blobs, Outbox, Store
from tpujob.protocol import paths, segment

BOB = caller("bob")
NOW = 1_767_225_600.0  #: 1 January 2026, the time of the backend

if TYPE_CHECKING:
    from tests.flow.page.conftest import Site

_NAMES = [
    "llama-8b-pretrain",
    "vit-l-imagenet",
    "gemma-sft",
    "ablation-lr-3e4",
    "tokenizer-v2",
    "dit-xl-256",
    "mlp-probe",
    "eval-suite",
]
_PLACES = (
    ("v4-32", "us-central2-b"),
    ("v5p-16", "us-east5-a"),
    ("v6e-8", "us-east1-d"),
    ("v5litepod-16", "us-west4-a"),
)
_MATHS = "the loss was not finite at step 1,204, on other hardware too: it is the maths"
_ENDED = {
    State.SUCCEEDED: (Outcome.SUCCEEDED, None, "every host exited with 0"),
    State.FAILED: (Outcome.FAILED, Cause.NONFINITE, _MATHS),
    State.CANCELLED: (None, None, "cancelled"),
}
_MESSAGES = {
    State.QUEUED: "it waits for capacity",
    State.PROVISIONING: "{kind} is asked for in {zone}",
    State.PREPARING: "attempt {tries} is being started on 2 hosts",
    State.RUNNING: "attempt {tries} runs on 2 hosts",
    State.HOLDING: "the program is stopped; the slice is kept for a resume",
    State.RELEASING: "attempt {tries} was preempted; the slice is released",
}


def job_in(state: State, n: int = 0, *, now: float = NOW, **changes: object) -> Job:
    """A job in that state, as it could have come there; `n` varies it."""
    dice = Random(n * 31 + list(State).index(state))
    owner = (ADA, BOB)[n % 3 == 2]
    kind, zone = _PLACES[n % len(_PLACES)]
    spec = parse(
        {
            "name": _NAMES[n % len(_NAMES)],
            "tpu": {"type": kind, "zones": [zone]},
            "run": {"command": "python3 train.py"},
        }
    )
    age = dice.uniform(600, 400_000)
    tries = 0 if state in (State.QUEUED, State.PROVISIONING) else dice.randint(1, 4)
    slices = tuple(
        _slice(k, tries, state, spec.tpu.types[0], zone, now, age) for k in range(1, tries + 1)
    )
    attempts = tuple(_attempt(k, tries, state, dice, now, age) for k in range(1, tries + 1))
    sentence = _MESSAGES.get(state, "").format(tries=tries, kind=kind, zone=zone)
    outcome, cause, message = _ENDED.get(state, (None, None, sentence))
    job = Job(
        id="",
        name=spec.name,
        user=owner.name,
        owner=owner.id,
        spec=spec,
        state=state,
        desired=DesiredState.CANCEL
        if state in (State.HOLDING, State.CANCELLED)
        else DesiredState.RUN,
        created_at=now - age,
        state_since=now - dice.uniform(5, 600),
        slices=slices,
        attempts=attempts,
        retries_used={"preemptions": tries - 1} if tries > 1 else {},
        next_state=State.QUEUED if state is State.RELEASING else None,
        hold_until=now + 1500 if state is State.HOLDING else None,
        outcome=outcome,
        cause=cause,
        message=message,
        finished_at=now - 300 if state.final else None,
    )
    return replace(job, **changes)  # pyright: ignore[reportArgumentType]


def _slice(k: int, last: int, state: State, kind: str, zone: str, now: float, age: float) -> Slice:
    newest, requested = k == last and not state.final, now - age * (last - k + 1) / (last + 1)
    return Slice(
        name=f"tj-000001-{k}",
        k=k,
        type=kind,
        zone=zone,
        pricing="spot",
        provider="cloud-tpu",
        system_image="tpu-ubuntu2204-base",
        usd_per_hour=12.88,
        requested_at=requested,
        ready_at=requested + 90,
        gone_at=None if newest else now - age * (last - k) / (last + 1) - 60,
        role=SliceRole.SERVING,
        endpoints=(Endpoint(0, "10.0.0.1"), Endpoint(1, "10.0.0.2")) if newest else (),
        delete_reason="preempted" if not newest or state is State.RELEASING else "",
    )


def _attempt(k: int, last: int, state: State, dice: Random, now: float, age: float) -> Attempt:
    over = k < last or state.final or state in (State.RELEASING, State.HOLDING)
    preempted = (Outcome.INTERRUPTED, Cause.PREEMPTED)
    ended = _ENDED[state][:2] if state in _ENDED and k == last else preempted
    outcome, cause = ended if over else (None, None)
    steps = 50_000
    done = int(steps * k / (last + 1) + dice.uniform(0, steps / (last + 1)))
    begun = now - age * (last - k + 1) / (last + 1) + 120
    running = state is not State.PREPARING or k < last
    progress = Progress(
        phase="train",
        step=steps if state is State.SUCCEEDED and k == last else done,
        steps=steps,
        loss=round(dice.uniform(1.8, 3.4), 4),
        checkpoint=done // 1000 * 1000,
    )
    return Attempt(
        number=k,
        slice=f"tj-000001-{k}",
        started_at=begun,
        running_at=begun + 60 if running else None,
        ended_at=now - age * (last - k) / (last + 1) - 90 if over else None,
        outcome=outcome,
        cause=cause,
        progress=progress if running else Progress(),
        progress_at=now - 20 if running else None,
        first_step=done - 5000 if running else None,
        first_step_at=now - 5020 if running else None,
    )


class _Delivered:
    def send(self, message: Message, *, timeout: float) -> Receipt:
        return Receipt()


def setup() -> NotificationSetup:
    """Two channels."""
    return NotificationSetup(
        {
            "lab": Channel("slack", "the webhook in SLACK_LAB", _Delivered()),
            "ops": Channel("webhook", "ops.example.org", _Delivered()),
        },
        (
            ChannelRule(("lab",)),
            ChannelRule(("ops",), users=("bob",), on=frozenset({NotificationKind.FAILED})),
        ),
    )


def notify(outbox: Outbox, jobs: list[Job]) -> None:
    """Store a message about each job that has failed: one was delivered, one is tried again."""
    failed = [job for job in jobs if job.state is State.FAILED]
    ways: dict[str, dict[str, Any]] = {
        "lab": {"state": "sent", "due": None},
        "ops": {"error": "HTTP 503: `tpujob x`", "due": NOW + 300},
    }
    for job, (channel, way) in product(failed, ways.items()):
        fact = Notification(
            job.id,
            NotificationKind.FAILED,
            NOW - 60.0,
            job.message,
            job.id,
            job.name,
            job.user,
            1,
            "CRASH",
        )
        message = replace(message_for(channel, fact), tried=1, tried_at=NOW - 30, **way)
        outbox.add([message])


def store_jobs(store: Store, jobs: Iterator[Job] | list[Job]) -> list[Job]:
    stored: list[Job] = []
    for job in jobs:
        created = Event(EventKind.CREATED, job.created_at, job.state, "created", by=job.user)
        stored.append(store.create(job, created))
    return stored


#: when the newest attempts of jobs wrote their first line
WROTE = NOW - 600


def ship(
    blobs: Blobs, job: Job, host: int, lines: Sequence[bytes], *, first: int = 1, number: int = 1
) -> None:
    """A segment of the newest attempt's log, as an agent writes it: a line each millisecond."""
    at = WROTE + first / 1000
    text = b"".join(b"%.3f %b\n" % (at + n / 1000, line) for n, line in enumerate(lines))
    attempt = len(job.attempts)
    path = paths.log_path(job.workdir_of(attempt), attempt, host, number)
    facts = segment.to_metadata(segment.SegmentFacts(first, len(lines), at))
    blobs.put(path, text, metadata=facts, timeout=5)


def output(blobs: Blobs, job: Job) -> None:
    """Write what two hosts print until one of them fails."""
    for host in range(2):
        steps = [
            b"step %d loss %.4f  %d tokens/s  mfu 0.53"
            % (n, 2.9 - (n - 21_000) / 9000, 211_000 + 7 * (n % 90))
            for n in range(21_000, 21_400)
        ]
        ship(blobs, job, host, [b"\x1b[1mgoing on from step 21000\x1b[0m", *steps])
    failed = ["Traceback (most recent call last):", '  File "train.py", line 212, in <module>', "    main()",
              '  File "train.py", line 87, in main', "    batch = next(batches)",
              "OSError: [Errno 5] the shard train-00017 ends too early"]  # fmt: skip
    ship(blobs, job, 1, [line.encode() for line in failed], first=402, number=2)


def quota(v4: int = 128) -> quotas.QuotaOverview:
    """Return the quota of a small lab in the zones of these jobs; `v4`: the limit of v4, in cores."""
    v4_, v5p, v6e, v5e = (quotas.QuotaKind(name, "spot") for name in ("v4", "v5p", "v6e", "v5e"))
    zones = [zone for _, zone in _PLACES]
    limits = [
        quotas.Limit("tpu", kind, "zone", zone, limit, quotas.unit_of(kind.generation))
        for kind, zone, limit in zip((v4_, v5p, v6e, v5e), zones, (v4, 64, 8, 64), strict=True)
    ]
    mine = zip((v4_, v5p, v6e, v5e), zones, (48, 16, 8, 32), strict=True)
    held = [quotas.Held(kind, zone, chips) for kind, zone, chips in mine]
    return quotas.QuotaOverview(
        "a-lab", quotas.allowances(limits, zones, held=held, closed_kinds=True)
    )


def say(site: Site, job: Job, message: str, **changes: object) -> Job:
    """Give the job this message."""
    store = site.stage.store
    current = store.get(job.id)
    changed = replace(current, message=message, **changes)
    stored = store.commit(
        changed, None, expected_version=current.version, op_id=message, lease=None
    )
    site.changes.poke()
    return stored


def blame(site: Site, machine: str, weight: float = 1.0) -> None:
    """Accuse that machine, as a replay does."""
    made = accusation(weight=weight, text="blamed", at=site.stage.clock.time)
    site.stage.store.reputation.accuse([machine], replace(made, job=machine))


def full(now: float = NOW) -> list[Job]:
    """Return jobs in each state, of two people."""
    states = [
        State.RUNNING,
        State.RUNNING,
        *State,
        State.RUNNING,
        State.QUEUED,
        State.SUCCEEDED,
        State.FAILED,
    ]
    return [job_in(state, n, now=now) for n, state in enumerate(states)]  # fmt: skip


def failing(now: float = NOW) -> list[Job]:
    """Return failed jobs, and jobs that release their slices."""
    return [job_in(State.FAILED, n, now=now) for n in range(4)] + [
        job_in(State.RELEASING, n, now=now) for n in range(2)
    ]


def many(count: int, now: float = NOW) -> Iterator[Job]:
    """Return the jobs of a lab after a year: most have ended."""
    ended = (State.SUCCEEDED, State.SUCCEEDED, State.FAILED, State.CANCELLED)
    live = (State.RUNNING, State.QUEUED, State.PROVISIONING, State.PREPARING)
    for n in range(count):
        yield job_in(live[n % 4] if n % 25 == 0 else ended[n % 4], n, now=now)
