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
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tpujob.domain.access import Principal
from tpujob.domain.text import rfc3339
from tpujob.errors import StoreError, TpujobError, Transient
from tpujob.service import Changes
from tpujob.web.middleware.connections import LINE, ClientConnection
from tpujob.web.middleware.security import WHO
from tpujob.web.schemas import Caller

log = logging.getLogger(__name__)

PATH = "/live"
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
BEAT = b":\n\n"
WAIT = 1.0  #: seconds of one wait for the store; then the follower looks whether the process ends
MOST = 100  #: ids in one event; more changes are sent as `null`: any job may have changed
#: milliseconds, at least and at most, until a browser opens the next stream: not all at once
RETRY = (200, 2000)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Seconds."""

    least: float = 0.25  #: between two events of a stream
    beat: float = 15.0  #: of silence, then a comment keeps proxies from closing the stream
    again: float = 25.0  #: until the caller is recognised again
    life: float = 55 * 60.0  #: of a stream: Cloud Run cuts it off after an hour
    slow: float = 20.0  #: that a reader may take for one event


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
        """How many are open. Any thread may ask."""
        return len(self._streams)

    @contextmanager
    def followed(self) -> Generator[None]:
        """Within it, this thread reads what the follower has seen already, so that many open pages cost the store what
        one does. Without a follower it asks the store. Raises Transient while the store does not answer."""
        if not self._follows:
            yield
            return
        if since := self._changes.failing:
            raise Transient(f"the store has not answered since {rfc3339(since)}")
        with self._changes.followed():
            yield

    def add(self, stream: "EventStream") -> None:
        self._streams.add(stream)
        if self._follows:  # else the follower says so once it has begun
            stream.note(None)  # what changed before is not known
        if self._follower is None:
            loop = asyncio.get_running_loop()
            self._follower = threading.Thread(
                target=self._follow, args=(loop,), name="live", daemon=True
            )
            self._follower.start()

    def remove(self, stream: "EventStream") -> None:
        self._streams.discard(stream)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop has ended
            try:
                seen = self._changes.now()
                self._follows = True
                self._send(loop, None)
                while self._streams and not self.stopped:
                    newest = self._changes.wait(None, seen, WAIT)
                    self.stopped = self._stopping()
                    if newest > seen or self.stopped:
                        self._send(loop, self._changes.since(seen))
                    seen = newest
            except TpujobError as error:
                log.warning("cannot follow the store: %s", error)
                time.sleep(WAIT)
            self._follows = False
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        """Follow again for streams that came meanwhile."""
        self._follower = None
        for stream in () if self.stopped else [*self._streams]:
            self.add(stream)

    def _send(self, loop: asyncio.AbstractEventLoop, ids: Collection[str] | None) -> None:
        for stream in [*self._streams]:
            loop.call_soon_threadsafe(stream.note, ids)


class EventStream(Response):
    """The stream of one page. It ends when its reader leaves, reads too slowly or may not watch any more, when it has
    lasted for `StreamTimes.life`, and when the process ends."""

    def __init__(self, events: Events, state: Mapping[str, Any]) -> None:
        """`state`: of the request, with the caller, what recognises them again, and the connection."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._events = events
        self._who: Principal = state["principal"]
        self._again: Callable[[], Awaitable[Principal]] = state[WHO]
        self._line: ClientConnection | None = state.get(LINE)
        self._ids: set[str] | None = set()  #: not sent yet; None: any
        self._wake, self._gone = asyncio.Event(), False

    def note(self, ids: Collection[str] | None) -> None:
        """These jobs have changed; None: any may have."""
        merged = None if ids is None or self._ids is None else self._ids.union(ids)
        self._ids = None if merged is None or len(merged) > MOST else merged
        self._wake.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        listening = asyncio.create_task(self._listen(receive))
        self._events.add(self)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
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
        again, beat = clock() + times.again, clock() + times.beat
        while not (self._gone or self._events.stopped or clock() >= ends):
            self._wake.clear()
            if self._ids is None or self._ids:
                ids, self._ids = self._ids, set()
                data = json.dumps(sorted(ids) if ids else None)
                await self._write(send, f"event: jobs\ndata: {data}\n\n".encode())
                beat = clock() + times.beat
                await asyncio.sleep(times.least)
            if clock() >= again:
                if not await self._may_watch():
                    return
                again = clock() + times.again
            if clock() >= beat:
                await self._write(send, BEAT)
                beat = clock() + times.beat
            try:
                async with asyncio.timeout_at(min(ends, again, beat)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _may_watch(self) -> bool:
        """Whether they would be let in now, as the same person with the same role. An answer that the store cannot give
        does not end a stream."""
        try:
            return await self._again() == self._who
        except (StoreError, Transient):
            return True
        except TpujobError:
            return False

    async def _write(self, send: Send, data: bytes, *, more: bool = True) -> None:
        """Raises TimeoutError when the reader takes nothing for too long."""
        async with asyncio.timeout(self._events.times.slow):
            await send({"type": "http.response.body", "body": data, "more_body": more})

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._wake.set()


def add(app: FastAPI, events: Events) -> None:
    @app.get(PATH, include_in_schema=False)
    async def live(api: Caller, request: Request) -> Response:
        _ = api.follow  # every caller with that right may see the id of any job
        return EventStream(events, request.scope["state"])

    _ = live
