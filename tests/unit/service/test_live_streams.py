"""The streams from the hosts of running attempts: who is asked, for how long, and what readers are told."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pytest

from tests.support.following import JOB, Agent, Clock, Reader, Stream, Streams, reading
from tests.support.shelf import Shelf
from tests.support.waiting import LONG, until
from tpujob.domain.model import Job, State
from tpujob.lib.tries import Backoff, Deadline
from tpujob.protocol import live
from tpujob.service.logs import LiveLogs, Logs
from tpujob.service.logs.live_stream import STARTING, UNSTORED_TTL, LiveLimits, Tails
from tpujob.wiring.backend import Backend

#: The first reader waits for the first words of the hosts, however late their streams begin.
PATIENT = LiveLimits(first=LONG)
HASTY = PATIENT._replace(pauses=Backoff(0.01, 0.01))  #: opens broken streams again at once


@dataclass
class Followed:
    """Two hosts of a running job, and what follows them."""

    written: int = 5
    deaf: set[int] = field(default_factory=set[int])
    limits: LiveLimits = PATIENT

    def __post_init__(self) -> None:
        self.shelf = Shelf()
        self.agents = [Agent(self.shelf, host, written=self.written) for host in (0, 1)]
        self.streams = Streams(self.agents, deaf=self.deaf)
        self.heard: Any = LiveLogs(self.streams, self.limits)  # pyright: ignore[reportArgumentType]
        self.logs: Any = Logs(self.shelf, self.heard)  # pyright: ignore[reportArgumentType]

    def fresh(self) -> Logs:
        """Logs whose lists are never shared."""
        return reading(self.shelf, self.heard)


@pytest.fixture
def following() -> Iterator[Callable[..., Followed]]:
    made: list[Followed] = []

    def follow(**options: Any) -> Followed:
        made.append(Followed(**options))
        return made[-1]

    yield follow
    for follower in made:
        follower.heard.close()


@pytest.fixture
def two(following: Callable[..., Followed]) -> Followed:
    return following()


def closed(stream: Stream) -> bool:
    """Whether it is, soon or late."""
    with stream.change:
        return stream.change.wait_for(lambda: None in stream.messages, LONG)


def test_many_readers_share_the_streams(two: Followed, clock: Clock) -> None:
    streams = two.streams
    readers = [Reader(two.fresh(), blocks=bool(n % 2)) for n in range(4)]
    for reader in readers:
        reader.read()
        assert reader.last == {0: 5, 1: 5}
    assert sorted(host for host, _ in streams.opened) == [0, 1]
    clock.passes(PATIENT.idle + 1)
    for host, stream in streams.opened:
        stream.tell({"kind": live.TAILS, "hosts": [host]})
    assert all(closed(stream) for _, stream in streams.opened)


def test_a_backend_that_stops_closes_its_streams(two: Followed) -> None:
    two.heard.tails(JOB, len(JOB.attempts), Deadline(10))
    nobody: Any = mock.Mock()
    Backend(nobody, nobody, nobody, nobody, nobody, two.heard, nobody).stop()
    assert all(closed(stream) for _, stream in two.streams.opened)


def test_a_broken_stream_is_opened_again(following: Callable[..., Followed]) -> None:
    two = following(limits=HASTY)
    reader = Reader(two.fresh(), blocks=True)
    reader.read()
    two.agents[0].write(3)
    two.agents[1].write(4)  # and both tell it to whoever calls them again
    for _, stream in list(two.streams.opened):
        stream.tell(None)

    def last() -> bool:
        reader.read()
        return reader.last == {0: 8, 1: 9}

    until(last, lambda: str(reader.last))


def test_lines_of_a_host_come_while_another_is_silent(following: Callable[..., Followed]) -> None:
    half = following(written=0, deaf={1})
    agent, reader = half.agents[0], Reader(half.logs, blocks=True)

    def told(line: int) -> None:
        agent.write(line - agent.written)
        ((_, stream),) = half.streams.opened
        stream.tell(live.to_message(agent.tell()))
        heard_until(half.heard, JOB, lambda tails: tails.of[0].end >= line)

    agent.write(100)
    reader.read()
    assert reader.last[0] == 100
    told(150)
    agent.ship(10**6)
    told(160)  # and that all lines up to 150 are stored
    reader.read()
    assert reader.last[0] == 160


def test_without_an_answer_the_log_is_what_is_stored(following: Callable[..., Followed]) -> None:
    mute = following(deaf={0, 1})
    reader = Reader(mute.fresh(), blocks=True)
    reader.read()
    assert reader.last == {0: 0, 1: 0}
    (note,) = reader.logs.window(JOB, {})["notes"]
    assert "cannot be followed over SSH (no route to host)" in note
    assert reader.logs.block(JOB).note == note
    for agent in mute.agents:
        agent.ship(5)
    reader.read()
    assert reader.last == {0: 5, 1: 5}


@pytest.mark.parametrize("delayed", [False, True])
def test_an_agent_need_not_listen_in_the_first_minute_of_its_attempt(
    following: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch, delayed: bool
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    logs = following(deaf={0, 1}).logs
    started = replace(JOB.attempts[-1], started_at=now - 1000 * delayed)
    job = replace(JOB, attempts=(*JOB.attempts[:-1], started), wake=now * delayed)
    assert (logs.block(job).note, logs.window(job, {})["notes"]) == ("", [])
    now += STARTING - 1
    assert logs.block(job).note == ""
    now += 1
    assert "no route to host" in logs.block(job).note


MANY = [replace(JOB, id=f"{n:06d}") for n in range(1, 5)]


def test_who_follows_more_than_are_followed_at_once_takes_the_place_of_what_nobody_reads(
    following: Callable[..., Followed], clock: Clock
) -> None:
    two = following(limits=PATIENT._replace(attempts=2))
    logs = two.logs
    for job in MANY[:2]:
        assert logs.block(job).data.count(b"\n") == 10
        clock.passes(PATIENT.idle / 2)
    refused = logs.block(MANY[2])
    assert (refused.data, len(two.streams.opened)) == (b"", 4), "both are read"
    assert "(too many logs are followed at once)" in refused.note
    clock.passes(PATIENT.idle * 0.3)
    assert logs.block(MANY[2]).data.count(b"\n") == 10
    assert logs.block(MANY[2]).note == ""
    assert "(too many" in logs.block(MANY[0]).note, "it was read longest ago, and gave its place up"


def test_what_nobody_reads_any_more_is_forgotten_though_nobody_else_comes(
    following: Callable[..., Followed], clock: Clock
) -> None:
    heard = following(limits=PATIENT._replace(tidied=0.01)).heard
    heard.tails(JOB, len(JOB.attempts), Deadline(10))
    assert heard.held > 0
    clock.passes(PATIENT.idle + UNSTORED_TTL / 2)
    heard.tails(MANY[0], len(JOB.attempts), Deadline(10))
    both = heard.held
    clock.passes(UNSTORED_TTL / 2 + 1)
    until(lambda: heard.held != both, "it is still there")
    assert heard.held > 0, "and only that"


def test_the_memory_for_all_that_is_heard_is_bounded(
    following: Callable[..., Followed], clock: Clock
) -> None:
    alone = following(written=200)
    alone.logs.block(MANY[0])
    stream_bytes = alone.heard.held
    large = following(written=200, limits=PATIENT._replace(held=2 * stream_bytes))
    heard, logs = large.heard, large.logs
    logs.block(MANY[0])
    logs.block(MANY[1])
    clock.passes(PATIENT.idle + 1)
    logs.block(MANY[1])
    assert logs.block(MANY[2]).note == "", "there was room: nobody reads the first one"
    assert heard.held <= 2 * stream_bytes
    assert logs.block(MANY[1]).note == ""
    block = logs.block(MANY[3])
    assert heard.held <= 2 * stream_bytes
    notes = [block.note, *(logs.block(job).note for job in MANY[1:3])]
    assert any("(more is printed than the backend can keep)" in note for note in notes)


ENDED = replace(JOB, attempts=tuple(replace(attempt, ended_at=50.0) for attempt in JOB.attempts))
STOPPING = replace(ENDED, state=State.HOLDING, stopped=False)
HELD = replace(STOPPING, stopped=True)
RETRIED = replace(JOB, state=State.PREPARING, wake=time.time() + 1200)


@pytest.mark.parametrize("job", [STOPPING, HELD, RETRIED, ENDED])
def test_hosts_are_asked_only_between_start_and_end_of_an_attempt(two: Followed, job: Job) -> None:
    two.agents[0].ship(5)
    block = two.logs.block(job)
    assert (block.data.count(b"\n"), block.note) == (5, "")
    assert two.logs.window(job, {})["notes"] == []
    assert two.streams.opened == []


def heard_until(heard: Any, job: Job, arrived: Callable[[Tails], bool]) -> None:
    until(lambda: arrived(heard.tails(job, len(job.attempts), Deadline(LONG))), "it was not heard")


def test_hosts_that_are_heard_when_their_program_is_stopped_are_heard_to_their_end(
    following: Callable[..., Followed], clock: Clock
) -> None:
    two = following(limits=HASTY)
    others, agents, streams = set(threading.enumerate()), two.agents, two.streams
    reader = Reader(two.fresh(), blocks=True)
    reader.read()
    reader.job = STOPPING
    for _ in range(3):
        clock.passes(PATIENT.idle * 0.8)
        reader.read()
    by_host = dict(streams.opened)
    for agent in agents:
        agent.write(3)
        by_host[agent.host].tell(live.to_message(agent.tell()))
    heard_until(two.heard, STOPPING, lambda tails: all(t.end == 8 for t in tails.of.values()))
    reader.read()
    assert reader.last == {0: 8, 1: 8}
    for stream in by_host.values():
        stream.tell(None)
    for thread in set(threading.enumerate()) - others:
        if thread.name == "live":
            thread.join(20)
    assert len(streams.opened) == 2, "they are not called again"
    reader.read()
    assert reader.notes == [], "they may still store it"
    agents[0].ship(8)
    reader.job = HELD
    reader.read()
    (note,) = reader.notes
    assert "before it had stored lines 1 to 8" in note, "those of host 1"


def test_an_unheard_host_is_no_trouble_after_the_end(following: Callable[..., Followed]) -> None:
    logs = following(deaf={1}).logs
    assert "no route to host" in logs.block(JOB).note
    assert logs.block(STOPPING).note == ""


def test_an_agent_that_just_ended_is_fine(following: Callable[..., Followed]) -> None:
    """A program has ended a moment before the backend knows it."""
    two = following(limits=PATIENT._replace(pauses=Backoff(LONG, LONG)))
    assert two.logs.block(JOB).note == ""
    for _, stream in two.streams.opened:
        stream.tell(None)
    heard_until(two.heard, JOB, lambda tails: not tails.whole)
    assert two.logs.block(JOB).note == ""


def test_what_a_host_stores_until_its_stream_ends_is_not_lost(two: Followed, clock: Clock) -> None:
    agent, heard = two.agents[0], two.heard
    two.agents[1].ship(5)
    reader, late = Reader(two.logs, blocks=True), Reader(two.logs, blocks=True, job=HELD)
    reader.read()
    reader.job = HELD
    reader.read()
    by_host = dict(two.streams.opened)
    agent.ship(5)
    agent.write(15)
    by_host[0].tell(live.to_message(agent.tell()))
    heard_until(heard, HELD, lambda tails: tails.of[0].settled == 5)
    clock.passes(0.5)
    late.read()  # makes a list
    assert late.last[0] == 20
    clock.passes(0.5)
    agent.ship(15)
    for stream in by_host.values():
        stream.tell(None)
    heard_until(heard, HELD, lambda tails: tails.over)
    reader.read()
    assert (reader.last[0], reader.notes) == (20, [])
