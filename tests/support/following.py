"""Hosts that print, stream and store their lines, and a follower, without agents, SSH and a bucket."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.records import a_job
from tests.support.shelf import Shelf
from tests.support.waiting import LONG
from tpujob.domain.model import Job, Slice, State
from tpujob.errors import Transient
from tpujob.protocol import live
from tpujob.service.logs import Logs
from tpujob.service.logs.live_stream import Tails
from tpujob.service.logs.live_tail import Ring

JOB = replace(a_job(), state=State.RUNNING)


def stored_form(host: int, number: int) -> bytes:
    return b"%.3f line %d of %d\n" % (1_700_000_000 + number / 10, number, host)


@dataclass
class Agent:
    """A host's log in its agent: lines are written, streamed to a follower, and shipped."""

    shelf: Shelf
    host: int
    written: int = 0
    shipped: int = 0
    sent: int = 0  #: the last line that was sent on the open stream
    number: int = 0  #: number of the newest segment

    def write(self, lines: int) -> None:
        self.written += lines

    def ship(self, lines: int, *, grow: bool = False) -> None:
        """Store at most so many lines, at the end of the newest segment or as a new one."""
        first, last = self.shipped + 1, min(self.written, self.shipped + lines)
        if last < first:
            return
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

    def tell(self, limit: int = 10**6) -> live.TailMessage:
        """Return the next tail, as `Log.pending` does."""
        after = max(self.sent, self.shipped)
        last = min(self.written, after + limit)
        data = b"".join(stored_form(self.host, n) for n in range(after + 1, last + 1))
        self.sent = last
        return live.TailMessage(self.host, after, after + 1, last - after, self.shipped, data)

    def reconnect(self) -> None:
        self.sent = 0


class Heard:
    """A stand-in for `Live` that tests feed by hand."""

    def __init__(self, room: int) -> None:
        self.rings = {0: Ring(room), 1: Ring(room)}
        self.settled_at, self.over = 0.0, False
        self.deaf = set[int]()  #: hosts whose messages are lost

    def take(self, tail: live.TailMessage) -> None:
        if tail.host in self.deaf:
            return
        self.rings[tail.host].take(tail)
        self.settled_at = time.monotonic()

    def tails(self, *_: object) -> Tails:
        rings = {host: ring.now() for host, ring in self.rings.items()}
        whole = not self.deaf and not self.over
        return Tails(rings, whole, self.over, self.settled_at)


def reading(shelf: Shelf, heard: Any) -> Logs:
    return Logs(shelf, heard, fresh=0)  # pyright: ignore[reportArgumentType]


@dataclass
class Reader:
    """A reader that follows in blocks or in pages, and fails where a line comes twice, late or never."""

    logs: Logs
    blocks: bool
    job: Job = JOB
    cursor: str = ""
    last: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    notes: list[str] = field(default_factory=list[str])

    def read(self) -> None:
        unread = True
        while unread:
            if self.blocks:
                block = self.logs.block(self.job, cursor=self.cursor)
                lines = [x.decode().split(" ", 2)[::2] for x in block.data.splitlines()]
                self.cursor, unread = block.cursor, block.more
            else:
                page = self.logs.page(self.job, cursor=self.cursor)
                lines = [[str(x["host"]), x["text"]] for x in page["lines"]]
                self.cursor, unread = page["cursor"], bool(page["lines"])
            for host, text in lines:
                self._take(int(host), text)

    def _take(self, host: int, text: str) -> None:
        if text.startswith("[tpujob]"):
            self.notes.append(text)
            return
        expected = f"line {self.last[host] + 1} of {host}"
        assert text == expected, f"{text!r} came, and not {expected!r}"
        self.last[host] += 1


class Clock:
    """A stand-in for `time.monotonic`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def passes(self, seconds: float) -> None:
        self._now += seconds


class Stream:
    """A stream whose messages tests put in."""

    def __init__(self, first: list[dict[str, Any]]) -> None:
        self.messages = deque[dict[str, Any] | None](first)
        self.change = threading.Condition()

    def tell(self, *messages: dict[str, Any] | None) -> None:
        with self.change:
            self.messages.extend(messages)
            self.change.notify_all()

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        while True:
            with self.change:
                assert self.change.wait_for(lambda: self.messages, LONG), (
                    "this stream was not closed"
                )
                message = self.messages.popleft()
            if message is None:
                raise Transient("the connection broke")
            yield message

    def close(self) -> None:
        self.tell(None)


@dataclass
class Streams:
    """The listening part of the port Hosts."""

    agents: list[Agent]
    deaf: set[int] = field(default_factory=set[int])
    opened: list[tuple[int, Stream]] = field(default_factory=list[tuple[int, Stream]])

    def listen(self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float) -> Stream:
        if host in self.deaf:
            raise Transient("no route to host")
        agent = next(agent for agent in self.agents if agent.host == host)
        agent.sent = 0
        stream = Stream([{"kind": live.TAILS, "hosts": [host]}, live.to_message(agent.tell())])
        self.opened.append((host, stream))
        return stream
