"""The queue, shares and the place of a job in `tpujob why`: golden texts, and what reaches the backend."""

import json
from typing import Any, cast

import pytest

from tests.support.commands import Tpujob
from tests.support.golden import golden
from tests.support.scripted import AT, ScriptedJobs, coming, job_view
from tpujob.api import PlaceView, QueueRow, QueueView, ShareView
from tpujob.cli.render.job_page import why_page
from tpujob.cli.render.queue_page import queue_page, shares_page
from tpujob.domain.text import seconds

pytestmark = pytest.mark.usefixtures("utc")

NOW = (seconds(AT) or 0) + 900
SOON = "2026-01-02T03:55:00.000Z"
LATER = "2026-01-04T09:00:00.000Z"


def reason(kind: str, text: str, *jobs: str, until: str | None = None) -> Any:
    facts = {"kind": kind, "text": text, "jobs": [*jobs], "count": len(jobs)}
    return facts | {"limit": 0, "until": until}


QUOTA = reason("quota", "48 of 64 chips of us-east5-b/v6e/spot are in use")


def place(position: int, *reasons: Any, about: str | None = None, **fields: Any) -> PlaceView:
    terms = {"priority": "normal", "raised": False, "share_usd": 412.5, "owner_usd": 96.2}
    terms |= {"rank": 0, "since": "2026-01-01T21:04:05.000Z"}
    facts = {"position": position, "starts_about": about, "passed": 0, "reasons": [*reasons]}
    facts |= {"helps": []}
    return cast(PlaceView, {**facts, "order": terms if position else None, **fields})


def row(job: str, name: str, user: str, where: PlaceView, **fields: Any) -> QueueRow:
    facts = {"id": job, "name": name, "user": user, "mine": False, "share": "", "alike": 0}
    tpu = {"type": "v6e-8", "zones": ["us-east5-b"], "pricing": "spot", "tpu_slices": 1, "chips": 8}
    return cast(QueueRow, {**where, **facts, **tpu, "since": AT, **fields})


BEHIND = reason("order", "waits behind 000412 for the same hardware", "000412")
SUCCESS = reason("dependency", "waits for the success of 000398", "000398")
MAY_NOT = reason("not_before", "may not start before 2026-01-04 09:00 UTC", until=LATER)
QUEUE = QueueView(
    rows=[
        row("000398", "sweep-7", "user-b", place(1, about="2026-01-02T03:00:00.000Z")),
        row("000412", "llama-7b", "user-a", place(2, QUOTA, about=SOON, passed=3), type="v6e-64"),
        row(
            *("000420", "pretrain-with-a-long-name", "user-c@example.org"),
            place(3, BEHIND, about=SOON),
            type="v5p-128",
            tpu_slices=4,
        ),
        row("000433", "eval", "user-a", place(0, SUCCESS, about=SOON)),
        row("000434", "nightly", "user-a", place(0, MAY_NOT, about=LATER), pricing="on-demand"),
        row("000435", "later-3", "user-b", place(0, reason("held", "held by user-b")), alike=1204),
    ],
    waiting=1213,
)


def share(name: str, weight: float, usd: float, part: float, due: float, *owners: Any) -> ShareView:
    return ShareView(
        name=name, weight=weight, usd=usd, part=part, due=due, waiting=3, owners=[*owners]
    )


SHARES = [
    share("speech", 1.0, 120.0, 0.12, 0.5, {"user": "user-c", "usd": 120.0, "part": 1.0}),
    share(
        *("vision", 1.0, 880.25, 0.88, 0.5),
        {"user": "user-a", "usd": 660.25, "part": 0.75},
        {"user": "user-b", "usd": 220.0, "part": 0.25},
    ),
]


def test_the_queue_at_two_widths() -> None:
    pages = {
        f"{columns} columns": queue_page(QUEUE, columns, now=NOW, shares=SHARES)
        for columns in (80, 150)
    }
    golden("queue", pages)
    assert QUEUE["rows"][4]["reasons"][0]["text"] in " ".join(pages["80 columns"].split())
    narrow = queue_page(QUEUE, 40, now=NOW)
    assert QUOTA["text"] in " ".join(narrow.split()), "no reason is cut"
    assert queue_page(QueueView(rows=[], waiting=0), 80, now=NOW) == "No job is in the queue."


def test_shares_with_their_owners() -> None:
    golden("shares", shares_page(SHARES, 80))


def test_why_of_a_job_that_waits_says_its_place_each_reason_and_the_terms_of_its_order() -> None:
    where = place(
        2,
        QUOTA,
        reason("refused", "the cloud has refused us-east1-d/v6e-64/spot"),
        about=SOON,
        helps=["`tpujob queue top 000042` moves it before ada's other jobs"],
    )
    job = job_view(
        state="queued",
        message="ada submitted digits for spot v6e-64",
        why=QUOTA["text"],
        next=coming("request_slice", "it requests a slice when enough chips are free"),
        place=where,
        progress_at=None,
        step=None,
        attempts=[],
        slices=[],
    )
    golden("why-queued", why_page(job, [], 80, NOW))


def test_the_command_asks_for_some_jobs_or_for_all(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.waiting, api.shared = QUEUE, SHARES
    assert "Used by shares: speech" in tpujob("queue").out
    assert tpujob("queue", "--json").json["rows"][0]["id"] == "000398"
    assert "shares" not in tpujob("queue", "412", "eval", "--limit", "5").out
    requests = [(c["jobs"], c["limit"]) for c in api.named("queue")]
    assert requests == [([], 50), ([], 50), (["412", "eval"], 5)]
    api.waiting = QueueView(rows=[], waiting=0)
    assert "why" in tpujob("queue", "42").out, "others may wait"
    process = tpujob.popen("queue", "--watch", "--json")
    assert process.stdout
    assert json.loads(process.stdout.readline()) == tpujob("queue", "--json").json
    process.terminate()
    assert "user-b" in tpujob("shares").out
    assert tpujob("shares", "--json").json[0]["name"] == "speech"


def test_jobs_are_held_released_moved_and_put_back(tpujob: Tpujob, api: ScriptedJobs) -> None:
    names = {"000001": "sweep-1", "000002": "sweep-2", "000003": "other"}
    api.jobs |= {id: job_view(id, name=name, state="queued") for id, name in names.items()}
    assert "Job 000001" in tpujob("queue", "hold", "1").out
    for words in ("release 1 2", "top other sweep-[1-2]", "requeue 2"):
        tpujob("queue", *words.split())
    assert [c["job"] for c in api.named("hold")] == ["1"]
    assert [c["job"] for c in api.named("release")] == ["1", "2"]
    moved = [c["job"] for c in api.named("top")]
    assert moved == ["sweep-2", "sweep-1", "other"], "the first comes to stand first"
    assert [c["job"] for c in api.named("requeue")] == ["2"]
    assert "needs one" in tpujob("queue", "top", code=2).err
    for option in ("--watch", "--limit 1"):
        assert "goes without" in tpujob("queue", "top", "1", *option.split(), code=2).err
