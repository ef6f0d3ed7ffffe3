"""Tells open pages which jobs have changed: `GET /live`, a stream of server-sent events.

An event has ids alone. The page then fetches itself again, by its ETag and with the rights of its caller. It also does
so every few seconds and after each new stream, so a lost event makes it late, never wrong.
"""

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tpujob.domain.text import rfc3339
from tpujob.errors import TpujobError, Transient
from tpujob.lib.threads import start_loop
from tpujob.service import Changes
from tpujob.service.authorization import authorize
from tpujob.web.schemas import caller_of
from tpujob.web.security.connections import LINE, ClientConnection

log = logging.getLogger(__name__)

PATH = "/live"
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
WAIT = 1.0  #: seconds of one wait for the store; then the follower looks whether the process ends
MAX_IDS = 100  #: ids in one event; more changes are sent as `null`: any job may have changed
#: milliseconds, at least and at most, until a browser opens the next stream: not all at once
RETRY = (200, 2000)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """The times of page streams, in seconds."""

    least: float = 0.25  #: between two events of a stream
    #: length of a stream, and so how long it may outlast the right to watch; no proxy closes a silent stream earlier
    life: float = 50.0
    slow: float = 20.0  #: after `life`, until a reader that takes no data is dropped


class Events:
    """The streams of one event loop, and the thread that follows the store while there is one."""

    def __init__(
        self, changes: Changes, stopping: Callable[[], bool], times: StreamTimes = StreamTimes()
    ) -> None:
        self.times, self._changes, self._stopping = times, changes, stopping
        self.stopped = False
        self._streams = set[EventStream]()
        self._follower: threading.Thread | None = None
        self._follows = False  #: the store was followed up to now

    @property
    def streams(self) -> int:
        """The number of open streams. Any thread may read it."""
        return len(self._streams)

    def check_store(self) -> None:
        """Raise Transient while the store does not answer the follower, so that no page waits for the store."""
        if self._follows and (since := self._changes.failing):
            raise Transient(f"the store has not answered since {rfc3339(since)}")

    def add(self, stream: "EventStream") -> None:
        self._streams.add(stream)
        if self._follows:  # else the follower says so once it has begun
            stream.note(None)  # what changed before is not known
        if self._follower is None:
            loop = asyncio.get_running_loop()
            self._follower = start_loop("live", lambda: self._follow(loop))

    def remove(self, stream: "EventStream") -> None:
        self._streams.discard(stream)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            seen = self._changes.now()
            self._follows = True
            self._send(loop, None)
            while self._streams and not self.stopped and not loop.is_closed():
                newest = self._changes.wait(None, seen, WAIT)
                self.stopped = self._stopping()
                if newest > seen or self.stopped:
                    self._send(loop, self._changes.since(seen))
                seen = newest
        except TpujobError as error:
            log.warning("cannot follow the store: %s", error)
            time.sleep(WAIT)
        finally:
            self._follows = False
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        """Follow the store again for streams that were opened meanwhile."""
        self._follower = None
        for stream in () if self.stopped else [*self._streams]:
            self.add(stream)

    def _send(self, loop: asyncio.AbstractEventLoop, ids: Collection[str] | None) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            for stream in [*self._streams]:
                loop.call_soon_threadsafe(stream.note, ids)


class EventStream(Response):
    """The stream of one page. It ends when its reader leaves or takes nothing, when it has lasted for
    `StreamTimes.life`, and when the process ends; the browser then opens the next one."""

    def __init__(self, events: Events, state: Mapping[str, Any]) -> None:
        """`state`: of the request, with its connection."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._events = events
        self._line: ClientConnection | None = state.get(LINE)
        self._ids: set[str] | None = set()  #: not sent yet; None: any
        self._wake, self._gone = asyncio.Event(), False

    def note(self, ids: Collection[str] | None) -> None:
        """Note that these jobs have changed; None: any may have."""
        merged = None if ids is None or self._ids is None else self._ids.union(ids)
        self._ids = None if merged is None or len(merged) > MAX_IDS else merged
        self._wake.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        listening = asyncio.create_task(self._listen(receive))
        self._events.add(self)
        times = self._events.times
        try:
            async with asyncio.timeout(times.life + times.slow):
                start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                await send(start)
                await self._write(send, b"retry: %d\n\n" % random.randint(*RETRY))  # noqa: S311
                await self._follow(send)
                await self._write(send, b"", more=False)
        except TimeoutError:
            if self._line:
                self._line.drop()
                await listening
        finally:
            listening.cancel()
            self._events.remove(self)

    async def _follow(self, send: Send) -> None:
        times, clock = self._events.times, asyncio.get_running_loop().time
        ends = clock() + times.life * random.uniform(0.9, 1.0)  # noqa: S311
        while not (self._gone or self._events.stopped or clock() >= ends):
            self._wake.clear()
            if self._ids is None or self._ids:
                ids, self._ids = self._ids, set()
                data = json.dumps(sorted(ids) if ids else None)
                await self._write(send, f"event: jobs\ndata: {data}\n\n".encode())
                await asyncio.sleep(times.least)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(ends):
                    await self._wake.wait()

    async def _write(self, send: Send, data: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._wake.set()


def add(app: FastAPI, events: Events) -> None:
    @app.get(PATH, include_in_schema=False)
    async def live(request: Request) -> Response:
        authorize(caller_of(request), "follow")  # who may follow may see the id of any job
        return EventStream(events, request.scope["state"])

    _ = live
