"""A running job's log: what is stored and what its hosts tell are one, whatever comes when."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pytest

from tests.support.records import a_job
from tests.support.shelf import Shelf
from tpujob.domain.model import Endpoint, Job, Outcome, Slice, State
from tpujob.errors import Transient
from tpujob.protocol import live, paths, segment
from tpujob.service.logs import Live, Logs
from tpujob.service.logs.live import Tails
from tpujob.service.logs.pieces import Until
from tpujob.service.logs.tail import Ring
from tpujob.wiring.backend import Backend

JOB = replace(a_job(), state=State.RUNNING)


def stored_form(host: int, number: int) -> bytes:
    return b"%.3f line %d of %d\n" % (1_700_000_000 + number / 10, number, host)


@dataclass
class Agent:
    """One host's log as its agent has it: lines are written, told to a follower, and shipped."""

    shelf: Shelf
    host: int
    written: int = 0
    shipped: int = 0
    sent: int = 0  #: the last line that was told on the stream that is open
    number: int = 0  #: of the newest segment
    cut: int = 0  #: the last line of what is on its way, which stays the same until it is known to have come

    def write(self, lines: int) -> None:
        self.written += lines

    def ship(self, lines: int, *, grow: bool = False) -> None:
        """At most so many lines, to the end of the newest segment or as a new one."""
        first, last = self.shipped + 1, self.cut or min(self.written, self.shipped + lines)
        if last < first:
            return
        self.cut = 0
        text = [stored_form(self.host, n).split(b" ", 1)[1][:-1] for n in range(first, last + 1)]
        if not (grow and self.number):
            self.number += 1
            self.shelf.ship(
                self.host, first, text, number=self.number, at=1_700_000_000 + first / 10, every=0.1
            )
        else:
            path = self.shelf.append(
                self.host,
                b"".join(stored_form(self.host, n) for n in range(first, last + 1)),
                segment=self.number,
            )
            held = int(self.shelf.facts[path]["lines"]) + last - first + 1
            self.shelf.facts[path] = {**self.shelf.facts[path], "lines": str(held)}
        self.shipped = last

    def piece(self, lines: int) -> tuple[int, int, bytes]:
        """At most so many lines, for an object of many hosts; they count as shipped once that is confirmed."""
        first, last = self.shipped + 1, self.cut or min(self.written, self.shipped + lines)
        self.cut = last if last >= first else 0
        data = b"".join(stored_form(self.host, n) for n in range(first, last + 1))
        return self.host, first, data

    def tell(self, most: int = 10**6) -> live.Tail:
        """What `Log.pending` gives."""
        after = max(self.sent, self.shipped)
        last = min(self.written, after + most)
        data = b"".join(stored_form(self.host, n) for n in range(after + 1, last + 1))
        self.sent = last
        return live.Tail(self.host, after, after + 1, last - after, self.shipped, data)

    def reconnect(self) -> None:
        self.sent = 0


class Heard:
    """As `Live`, fed by hand."""

    def __init__(self, room: int) -> None:
        self.rings = {0: Ring(room), 1: Ring(room)}
        self.settled_at, self.over, self.whole = 0.0, False, True

    def take(self, tail: live.Tail) -> None:
        self.rings[tail.host].take(tail)
        self.settled_at = time.monotonic()

    def tails(self, *_: object) -> Tails:
        found = {host: ring.now() for host, ring in self.rings.items()}
        return Tails(found, self.whole, self.over, self.settled_at)


def reading(shelf: Shelf, heard: Any) -> Logs:
    return Logs(shelf, heard, fresh=0)  # pyright: ignore[reportArgumentType]


@dataclass
class Reader:
    """Follows in blocks or in pages, and fails where a line comes twice, late or not at all."""

    logs: Logs
    blocks: bool
    job: Job = JOB
    cursor: str = ""
    last: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    notes: list[str] = field(default_factory=list[str])

    def read(self) -> None:
        more = True
        while more:
            if self.blocks:
                block = self.logs.block(self.job, cursor=self.cursor)
                told = [x.decode().split(" ", 2)[::2] for x in block.data.splitlines()]
                self.cursor, more = block.cursor, block.more
            else:
                page = self.logs.page(self.job, cursor=self.cursor)
                told = [[str(x["host"]), x["text"]] for x in page["lines"]]
                self.cursor, more = page["cursor"], bool(page["lines"])
            for host, text in told:
                self._take(int(host), text)

    def _take(self, host: int, text: str) -> None:
        if text.startswith("[tpujob]"):
            self.notes.append(text)
            return
        expected = f"line {self.last[host] + 1} of {host}"
        assert text == expected, f"{text!r} came, and not {expected!r}"
        self.last[host] += 1


def ship_together(shelf: Shelf, agents: list[Agent], lines: int, chance: random.Random) -> None:
    """One host writes for all. Sometimes nobody hears that it did, so that the same lines are written once more."""
    pieces = [piece for agent in agents if (piece := agent.piece(lines))[2]]
    if not pieces:
        return
    shelf.ship_together(pieces, by=chance.randrange(2), number=len(shelf.objects) + 1)
    if chance.random() < 0.7:
        for host, first, data in pieces:
            agents[host].shipped, agents[host].cut = first + data.count(b"\n") - 1, 0


STEPS = ["write", "ship", "grow", "tell", "some", "some", "skip", "reconnect", "read", "read"]


@pytest.mark.parametrize("seed", range(60))
def test_each_line_comes_once_in_order_without_a_gap(seed: int) -> None:
    chance = random.Random(seed)
    blocks, room = chance.random() < 0.5, chance.choice([120, 1000, 10**6])
    names = STEPS if seed % 2 else [*STEPS[:2], "together", "together", *STEPS[3:]]
    steps = [
        (chance.choice(names), chance.randrange(2), chance.randrange(1, 30)) for _ in range(80)
    ]
    shelf, heard = Shelf(), Heard(room)
    agents = [Agent(shelf, host) for host in (0, 1)]
    reader = Reader(reading(shelf, heard), blocks)
    for step, host, count in steps:
        agent = agents[host]
        if step == "write":
            agent.write(count)
        elif step in ("ship", "grow"):
            agent.ship(count, grow=step == "grow")
        elif step == "together":
            ship_together(shelf, agents, count, chance)
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
        agent.ship(10**6)
        heard.take(agent.tell())
    reader.read()
    assert reader.last == {agent.host: agent.written for agent in agents}


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
    found = logs.search(JOB, {"text": "line 4", "host": 0})
    assert [x["line"] for x in found["matches"]] == [4, *range(40, 50)]
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
    (said,) = reader.notes
    assert "before it had stored lines 21 to 50" in said
    late = Reader(reading(shelf, heard), blocks=False, job=reader.job)
    late.read()
    assert (late.last[0], len(late.notes)) == (50, 1), "as long as this backend remembers it"


def test_what_is_stored_at_the_end_is_not_said_to_be_lost() -> None:
    shelf, heard = Shelf(), Heard(10**6)
    agent = Agent(shelf, 0)
    agent.write(50)
    heard.take(agent.tell())
    reader = Reader(reading(shelf, heard), blocks=True)
    reader.read()
    agent.ship(50)
    heard.over, heard.whole, heard.settled_at = True, False, time.monotonic()
    reader.job = replace(JOB, state=State.SUCCEEDED)
    reader.read()
    assert (reader.last[0], reader.notes) == (50, [])


def test_a_host_that_died_before_it_had_shipped_its_last_lines_is_named() -> None:
    shelf = Shelf()
    for host in (0, 1):
        path = shelf.append(host, stored_form(host, 1), segment=1)
        shelf.facts[path] = segment.written(segment.SegmentFacts(1, 1, 1.0, open=host == 1))
    dead = replace(JOB, slices=tuple(replace(s, gone_at=60.0) for s in JOB.slices))
    attempts = tuple(replace(one, ended_at=50.0) for one in dead.attempts)
    dead = replace(dead, state=State.FAILED, attempts=attempts)
    logs = reading(shelf, None)
    said = logs.block(dead).note
    assert said.startswith("What host 1 printed last, before 1970-01-01T00:00:50Z, may be missing")
    assert "line 1 of host 1 is the last one that reached the bucket" in said
    assert logs.window(dead, {})["notes"] == [said]
    assert logs.block(replace(dead, slices=JOB.slices, state=State.RUNNING)).note == ""


@pytest.mark.parametrize(
    ("outcome", "named"), [(Outcome.INTERRUPTED, True), (Outcome.SUCCEEDED, False)]
)
def test_a_host_that_was_taken_away_before_it_had_shipped_anything_is_named(
    outcome: Outcome, named: bool
) -> None:
    shelf = Shelf()
    path = shelf.append(0, stored_form(0, 1), segment=1)
    shelf.facts[path] = segment.written(segment.SegmentFacts(1, 1, 1.0, open=False))
    hosts = (Endpoint(0, "10.0.0.1"), Endpoint(1, "10.0.0.2"))
    dead = replace(JOB, slices=tuple(replace(s, endpoints=hosts, gone_at=60.0) for s in JOB.slices))
    attempts = tuple(
        replace(one, running_at=10.0, ended_at=50.0, outcome=outcome) for one in dead.attempts
    )
    dead = replace(dead, state=State.FAILED, attempts=attempts)
    logs = reading(shelf, None)
    said = logs.block(dead).note
    assert said.startswith("Nothing that host 1 printed is in the bucket") is named, said
    assert logs.window(dead, {})["notes"] == [said] * named
    assert logs.block(dead, host=0).note == "", "somebody who reads host 0 is not told of others"


# The streams ---------------------------------------------------------------------------------------------------------


class Stream:
    """A stream whose messages are put in by hand."""

    def __init__(self, first: list[dict[str, Any]]) -> None:
        self.said = deque[dict[str, Any] | None](first)
        self.change = threading.Condition()

    def tell(self, *said: dict[str, Any] | None) -> None:
        with self.change:
            self.said.extend(said)
            self.change.notify_all()

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        while True:
            with self.change:
                assert self.change.wait_for(lambda: self.said, 30), "nobody closed this stream"
                said = self.said.popleft()
            if said is None:
                raise Transient("the connection broke")
            yield said

    def close(self) -> None:
        self.tell(None)


@dataclass
class Streams:
    """As much of the port Hosts as is listened to."""

    agents: list[Agent]
    relays: bool = False  #: host 0 speaks for all
    deaf: set[int] = field(default_factory=set[int])
    opened: list[tuple[int, Stream]] = field(default_factory=list[tuple[int, Stream]])

    def listen(self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float) -> Stream:
        if host in self.deaf:
            raise Transient("no route to host")
        speaks = [a.host for a in self.agents] if self.relays and host == 0 else [host]
        for agent in self.agents:
            agent.sent = 0 if agent.host in speaks else agent.sent
        first = [live.written(a.tell()) for a in self.agents if a.host in speaks]
        stream = Stream([{"kind": live.TAILS, "hosts": speaks}, *first])
        self.opened.append((host, stream))
        return stream


def test_many_readers_share_one_stream_and_it_is_closed_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf()
    agents = [Agent(shelf, host, written=5) for host in (0, 1)]
    streams = Streams(agents, relays=True)
    heard = Live(streams)  # pyright: ignore[reportArgumentType]
    readers = [Reader(reading(shelf, heard), blocks=bool(n % 2)) for n in range(4)]
    for reader in readers:
        reader.read()
        assert reader.last == {0: 5, 1: 5}
    assert len(streams.opened) == 1, "host 0 speaks for both"
    monkeypatch.setattr("tpujob.service.logs.live.IDLE", 0.0)
    ((_, stream),) = streams.opened
    stream.tell({"kind": live.TAILS, "hosts": [0, 1]})
    with stream.change:
        assert stream.change.wait_for(lambda: None in stream.said, 10), "it was not closed"


def test_a_backend_that_stops_closes_its_streams() -> None:
    streams = Streams([Agent(Shelf(), 0, written=5), Agent(Shelf(), 1)], relays=True)
    heard: Any = Live(streams)  # pyright: ignore[reportArgumentType]
    heard.tails(JOB, len(JOB.attempts), Until(10))
    nobody: Any = mock.Mock()
    Backend(nobody, nobody, nobody, nobody, nobody, heard).stop()
    ((_, stream),) = streams.opened
    with stream.change:
        assert stream.change.wait_for(lambda: None in stream.said, 10), "it was not closed"


def test_whoever_follows_over_ssh_makes_nobody_list_the_bucket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, heard, lists = Shelf(), Heard(10**6), list[str]()
    real = shelf.list

    def counted(prefix: str, **how: Any) -> Any:
        lists.append(prefix)
        return real(prefix, **how)

    monkeypatch.setattr(shelf, "list", counted)
    agents = [Agent(shelf, host) for host in (0, 1)]
    reader = Reader(reading(shelf, heard), blocks=False)
    late = Reader(reader.logs, blocks=True)
    for _ in range(50):
        for agent in agents:
            agent.write(3)
            heard.take(agent.tell())
        reader.read()
    assert len(lists) == 1, "at first nobody knows what is stored"
    for agent in agents:
        agent.ship(10**6)
        heard.take(agent.tell())
    for _ in range(50):
        for agent in agents:
            agent.write(3)
            heard.take(agent.tell())
        reader.read()
    assert len(lists) == 1, "it has read before what is stored by now"
    late.read()
    assert len(lists) == 2, "who comes later reads there"
    assert reader.last == late.last == {0: 300, 1: 300}


def test_a_host_that_nobody_speaks_for_is_asked_itself_and_a_stream_that_breaks_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tpujob.service.logs.live.PAUSES", (0.01,))
    shelf = Shelf()
    agents = [Agent(shelf, host, written=5) for host in (0, 1)]
    streams = Streams(agents)
    heard = Live(streams)  # pyright: ignore[reportArgumentType]
    reader = Reader(reading(shelf, heard), blocks=True)
    reader.read()
    assert reader.last == {0: 5, 1: 5}
    assert sorted(host for host, _ in streams.opened) == [0, 1]
    streams.relays = True  # host 0 is called again, and has found the other
    for _, stream in list(streams.opened):
        stream.tell(None)
    agents[0].write(3)
    agents[1].write(4)
    until = time.monotonic() + 20
    while reader.last != {0: 8, 1: 9} and time.monotonic() < until:
        reader.read()
    assert reader.last == {0: 8, 1: 9}
    heard.close()


def test_where_no_host_answers_the_log_is_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpujob.service.logs.live.FIRST", 0.2)
    shelf = Shelf()
    agents = [Agent(shelf, host, written=5) for host in (0, 1)]
    heard = Live(Streams(agents, deaf={0, 1}))  # pyright: ignore[reportArgumentType]
    reader = Reader(reading(shelf, heard), blocks=True)
    reader.read()
    assert reader.last == {0: 0, 1: 0}
    sign = paths.followed_path(JOB.workdir, len(JOB.attempts))
    assert shelf.generations[sign] == 1, "hosts are asked to ship, and not at each look"
    (note,) = reader.logs.window(JOB, {})["notes"]
    assert "cannot be followed over SSH (no route to host)" in note
    assert reader.logs.block(JOB).note == note
    for agent in agents:
        agent.ship(5)
    reader.read()
    assert reader.last == {0: 5, 1: 5}
    heard.close()
