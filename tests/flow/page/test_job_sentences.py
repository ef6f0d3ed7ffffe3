"""The same sentence in the API, in the terminal and on the page, for every state and every cause that there is."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import get_args

import httpx
import pytest

from tests.flow.page.conftest import HTML, Site
from tests.support.callers import ADA
from tests.support.records import NOW, V6E, job_in
from tpujob.api import JobView, NextAction
from tpujob.cli.render.job_page import job_page, why_page
from tpujob.domain.copies import Copy, CopyProgress
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Cause, DesiredState, Job, Outcome, State


def every_job() -> Iterator[Job]:
    """In each state with each wish; ended, or on its way out, for each cause; refused for each."""
    for state, wish in product(State, DesiredState):
        yield job_in(state, desired=wish)
    for cause in Cause:
        failed = replace(job_in(State.FAILED), cause=cause, outcome=Outcome.FAILED)
        yield replace(failed, message=f"attempt 1 ended, {cause}: as its hosts say")
        job = job_in(State.RELEASING)
        ended = replace(
            job.attempts[0], cause=cause, outcome=Outcome.INTERRUPTED, message=f"it was {cause}"
        )
        yield replace(job, cause=cause, attempts=(ended,), message=f"{cause}; giving it back")
        again = job_in(State.PREPARING)
        yield replace(again, message=f"{cause}: again in 20 s", wake=NOW + 20, attempts=(ended,))
        refused = replace(
            job_in(State.PROVISIONING).slices[0],
            refused=cause,
            gone_at=NOW - 60,
            delete_reason=f"no slice, {cause}",
        )
        waits = replace(job_in(State.QUEUED), slices=(refused,), wake=NOW + 300)
        yield replace(waits, message=f"after {cause}, next try in 5 min")
    copy = Copy("c", "tokens", "gs://a", "gs://b", "us-east5", NOW - 60, 0, 0)
    yield replace(
        job_in(State.QUEUED),
        spec=V6E,  # which no other job wants
        copies=(replace(copy, progress=CopyProgress(bytes=5 * 2**30)),),
    )


def plain(text: str) -> str:
    """Without line breaks, markup and what marks commands."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).replace("`", "").split())


def element(page: str, id: str) -> str:
    match = re.search(rf'id="{id}">(.*?)</(?:p|span)>', page, re.S)
    assert match, f"#{id} is not on the page"
    return plain(match[1])


@pytest.fixture
def jobs(site: Site) -> list[JobView]:
    """Return the jobs as the API gives them, each stored as it is."""
    site.stage.clock.time = NOW
    for stored in every_job():
        owned = replace(
            stored, id="", owner=ADA.id, user=ADA.name, message=stored.message or "why not"
        )
        made = Event(EventKind.CREATED, stored.created_at, stored.state, "created")
        site.stage.store.create(owned, made)
    return [site.api.get(job["id"]) for job in site.api.list()["rows"]]


def test_cause_since_and_next_step_are_equal_everywhere(site: Site, jobs: list[JobView]) -> None:
    with httpx.Client(base_url=site.url, headers=HTML) as client:
        for job in jobs:
            page = client.get(f"/jobs/{job['id']}").text
            twin: JobView = client.get(f"/jobs/{job['id']}.json").json()["job"]
            terminal = [plain(make(job, [], 80, NOW)) for make in (job_page, why_page)]
            about = f"{job['state']}, {job['desired']}, {job['cause']}"
            for sentence, id in ((job["why"], "job-now"), (job["next"]["text"], "job-next")):
                assert sentence, about
                assert element(page, id) == plain(sentence), about
                assert all(plain(sentence) in text for text in terminal), (
                    about,
                    sentence,
                    terminal,
                )
            assert (twin["why"], twin["next"]) == (job["why"], job["next"]), about
            assert f'<time datetime="{job["state_since"]}"' in page, about
            if job["cause"] and job["state"] != "queued":
                assert job["cause"] in plain(page), f"the cause is missing: {about}"
            for action in job["actions"]:
                assert action["does"] in plain(page), about


def test_the_jobs_of_this_test_are_every_state_cause_and_next_step(jobs: list[JobView]) -> None:
    assert {job["state"] for job in jobs} == set(State)
    assert {job["cause"] for job in jobs} >= set(Cause)
    assert {job["next"]["action"] for job in jobs} == set(get_args(NextAction))
