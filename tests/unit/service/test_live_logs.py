"""A running job's log: what is stored and what its hosts tell are one, whatever comes when."""

import random
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.support.following import (
    JOB,
    Agent,
    Clock,
    Heard,
    Reader,
    reading,
    stored_form,
)
from tests.support.shelf import Shelf
from tpujob.domain.model import Endpoint, Job, Outcome, State
from tpujob.protocol import segment
from tpujob.service.logs import Logs
from tpujob.service.logs.segments import LIST_TTL


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def counted(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lists of that shelf that were made."""
    lists, real = list[str](), shelf.list

    def listed(prefix: str, **how: Any) -> Any:
        lists.append(prefix)
        return real(prefix, **how)

    monkeypatch.setattr(shelf, "list", listed)
    return lists


STEPS = ["write", "ship", "grow", "tell", "some", "some", "skip", "reconnect", "read", "read"]


def play(
    seed: int,
    shelf: Shelf,
    heard: Heard,
    logs: Logs,
    chance: random.Random,
    *,
    clock: Clock | None = None,
) -> None:
    """Play events of two hosts in a random order while a reader follows; at the end everything is stored.

    `clock` goes on between the events.
    """
    steps = [
        (chance.choice(STEPS), chance.randrange(2), chance.randrange(1, 30)) for _ in range(80)
    ]
    agents = [Agent(shelf, host) for host in (0, 1)]
    reader = Reader(logs, blocks=chance.random() < 0.5)
    for step, host, count in steps:
        agent = agents[host]
        if clock:
            clock.passes(chance.choice([0.01, 0.3, 1.5]))
        if step == "write":
            agent.write(count)
        elif step in ("ship", "grow"):
            agent.ship(count, grow=step == "grow")
        elif step == "tell":
            heard.take(agent.tell())
        elif step == "some":
            heard.take(agent.tell(3))
        elif step == "reconnect":
            agent.reconnect()
        elif step == "skip":  # a message is lost
            agent.tell(count)
        else:
            reader.read()
    for agent in agents:
        agent.ship(10**6)  # what was on its way
        agent.ship(10**6)
        heard.take(agent.tell())
    if clock:
        clock.passes(LIST_TTL + 1)
    reader.read()
    assert reader.last == {agent.host: agent.written for agent in agents}


@pytest.mark.parametrize("seed", range(60))
def test_each_line_comes_once_in_order_without_a_gap(seed: int) -> None:
    chance = random.Random(seed)
    shelf, heard = Shelf(), Heard(chance.choice([120, 1000, 10**6]))
    play(seed, shelf, heard, reading(shelf, heard), chance)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_a_line_comes_once_where_readers_share_lists(seed: int, whole: bool, clock: Clock) -> None:
    chance = random.Random(seed)
    shelf, heard = Shelf(), Heard(chance.choice([120, 1000, 10**6]))
    heard.deaf = set() if whole else {1}
    logs = Logs(shelf, heard)  # pyright: ignore[reportArgumentType]
    play(seed, shelf, heard, logs, chance, clock=clock)


def test_lines_that_are_stored_before_others_are_lost_are_read(clock: Clock) -> None:
    shelf, heard = Shelf(), Heard(10**6)
    agent = Agent(shelf, 0)
    reader = Reader(Logs(shelf, heard), blocks=True)  # pyright: ignore[reportArgumentType]
    heard.deaf = {1}
    reader.read()
    agent.write(50)
    heard.take(agent.tell())
    agent.ship(20)
    clock.passes(0.5)  # the list that was made before is young
    heard.over, heard.settled_at = True, time.monotonic()
    reader.read()
    assert (reader.last[0], len(reader.notes)) == (50, 1)


def test_lists_are_made_for_a_host_without_reports_and_for_needed_lines(
    clock: Clock, counted: list[str], shelf: Shelf
) -> None:
    heard = Heard(10**6)
    heard.deaf = {1}
    agent = Agent(shelf, 0)
    reader = Reader(Logs(shelf, heard), blocks=False)  # pyright: ignore[reportArgumentType]
    for _ in range(20):
        clock.passes(LIST_TTL / 10)
        agent.write(3)
        heard.take(agent.tell())
        reader.read()
    assert len(counted) == 2, "as many as for a log that is only stored"
    clock.passes(LIST_TTL + 1)
    reader.read()
    agent.write(3)
    heard.take(agent.tell())
    agent.ship(10**6)
    heard.take(agent.tell())
    counted.clear()
    for _ in range(5):
        reader.read()
    assert len(counted) == 1, "what it has stored since is read once"
    assert reader.last[0] == agent.written


def half_stored() -> tuple[Shelf, Heard, Agent]:
    """A host has told 50 lines, of which 20 are in the bucket."""
    shelf, heard = Shelf(), Heard(10**6)
    agent = Agent(shelf, 0)
    agent.write(50)
    agent.ship(20)
    heard.take(agent.tell())
    return shelf, heard, agent


def test_windows_and_searches_see_what_is_not_stored_yet() -> None:
    shelf, heard, agent = half_stored()
    logs = reading(shelf, heard)
    window = logs.window(JOB, {"host": 0, "lines": 100})
    assert [line["line"] for line in window["lines"]] == list(range(1, 51))
    assert window["notes"] == []
    matches = logs.search(JOB, {"text": "line 4", "host": 0})
    assert [x["line"] for x in matches["matches"]] == [4, *range(40, 50)]
    agent.write(5)
    heard.take(agent.tell())
    page = logs.page(JOB, cursor=window["cursor"])
    assert [x["line"] for x in page["lines"]] == [51, 52, 53, 54, 55], "a page goes on from there"
    assert [x["line"] for x in logs.page(JOB, tail=2)["lines"]] == [54, 55]


def test_what_an_agent_takes_along_is_shown_and_said_to_be_lost() -> None:
    shelf, heard, _ = half_stored()
    reader = Reader(reading(shelf, heard), blocks=True)
    reader.read()
    assert reader.last[0] == 50
    heard.over = True
    reader.job = replace(JOB, state=State.FAILED)
    reader.read()
    (note,) = reader.notes
    assert "before it had stored lines 21 to 50" in note
    late = Reader(reading(shelf, heard), blocks=False, job=reader.job)
    late.read()
    assert (late.last[0], len(late.notes)) == (50, 1), "as long as this backend remembers it"


def ended(hosts: tuple[Endpoint, ...] = (), **attempt: Any) -> Job:
    """The job with its slice gone, after its attempts have ended."""
    slices = tuple(replace(s, endpoints=hosts or s.endpoints, gone_at=60.0) for s in JOB.slices)
    attempts = tuple(replace(a, ended_at=50.0, **attempt) for a in JOB.attempts)
    return replace(JOB, state=State.FAILED, slices=slices, attempts=attempts)


def test_a_host_that_died_before_it_had_shipped_its_last_lines_is_named() -> None:
    shelf = Shelf()
    for host in (0, 1):
        path = shelf.append(host, stored_form(host, 1), segment=1)
        shelf.facts[path] = segment.to_metadata(segment.SegmentFacts(1, 1, 1.0, open=host == 1))
    dead, logs = ended(), reading(shelf, None)
    note = logs.block(dead).note
    assert note.startswith("What host 1 printed last, before 1970-01-01T00:00:50Z, may be missing")
    assert "line 1 of host 1 is the last one that reached the bucket" in note
    assert logs.window(dead, {})["notes"] == [note]
    assert logs.block(replace(dead, slices=JOB.slices, state=State.RUNNING)).note == ""


@pytest.mark.parametrize(
    ("outcome", "named"), [(Outcome.INTERRUPTED, True), (Outcome.SUCCEEDED, False)]
)
def test_a_host_that_vanished_with_its_lines_is_named(outcome: Outcome, named: bool) -> None:
    shelf = Shelf()
    path = shelf.append(0, stored_form(0, 1), segment=1)
    shelf.facts[path] = segment.to_metadata(segment.SegmentFacts(1, 1, 1.0, open=False))
    hosts = (Endpoint(0, "10.0.0.1"), Endpoint(1, "10.0.0.2"))
    dead, logs = ended(hosts, running_at=10.0, outcome=outcome), reading(shelf, None)
    note = logs.block(dead).note
    assert note.startswith("Nothing that host 1 printed is in the bucket") is named, note
    assert logs.window(dead, {})["notes"] == [note] * named
    assert logs.block(dead, host=0).note == "", "somebody who reads host 0 is not told of others"


def test_a_follower_over_ssh_does_not_list_the_bucket(counted: list[str], shelf: Shelf) -> None:
    heard = Heard(10**6)
    agents = [Agent(shelf, host) for host in (0, 1)]
    reader = Reader(reading(shelf, heard), blocks=False)
    late = Reader(reader.logs, blocks=True)
    for _ in range(50):
        for agent in agents:
            agent.write(3)
            heard.take(agent.tell())
        reader.read()
    assert not counted, "hosts report everything themselves"
    for agent in agents:
        agent.ship(10**6)
        heard.take(agent.tell())
    for _ in range(50):
        for agent in agents:
            agent.write(3)
            heard.take(agent.tell())
        reader.read()
    assert not counted, "it has read before what is stored by now"
    late.read()
    assert len(counted) == 1, "who comes later reads there"
    assert reader.last == late.last == {0: 300, 1: 300}
