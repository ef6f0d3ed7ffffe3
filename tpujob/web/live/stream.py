"""One viewer's stream of server-sent events, from its first byte to its end."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tpujob.domain.access import Principal
from tpujob.errors import StoreError, TpujobError, Transient
from tpujob.web.connections import LINE, Connection
from tpujob.web.guard import WHO
from tpujob.web.live.fragments import event, everything
from tpujob.web.live.hub import Hub, View, Watcher

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
BEAT = b":\n\n"
#: Why a stream ends, as the page is told. After the first three it comes back by itself.
RENEW, STOPS, ACCESS, GONE = "renew", "stops", "access", "gone"
#: milliseconds, at least and at most, until somebody whose stream has ended comes back: not all at once
BACK = (200, 2000)


class Stream(Response):
    """Sends what is missing, then each difference, until the reader leaves, may not watch any more, reads too slowly,
    or has read for as long as `Pace.life`. Its last event says why it ends."""

    def __init__(self, hub: Hub, view: View, watcher: Watcher, state: Mapping[str, Any]) -> None:
        """`state`: of the request, with who asks, what recognises them once more, and the connection."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._hub, self._view, self._watcher = hub, view, watcher
        self._who: Principal = state["principal"]
        self._again: Callable[[], Awaitable[Principal]] = state[WHO]
        self._line: Connection | None = state.get(LINE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        self._send = send
        listening = asyncio.create_task(self._listen(receive))
        try:
            await self._begin()
            await self._finish(await self._follow())
        except TimeoutError:
            if self._line:  # it reads too slowly; it comes back and gets what is newest
                self._line.drop()
                await listening
        finally:
            listening.cancel()
            self._hub.leave(self._view, self._watcher)

    async def _begin(self) -> None:
        if self._line:
            self._line.narrow()
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        )
        await self._write(BEAT + _retry())

    async def _follow(self) -> str:
        """Returns why it ends; empty: the reader has left."""
        pace, clock = self._hub.pace, asyncio.get_running_loop().time
        ends = clock() + pace.life * random.uniform(0.9, 1.0)  # noqa: S311
        again, beat = self._at_once(), clock() + pace.beat
        while not self._watcher.gone:
            self._watcher.wake.clear()
            news, why = self._news() + self._of_the_store(), self._why()
            if news:
                await self._write(news)
                beat = clock() + pace.beat
            if why or clock() >= ends:
                return why or RENEW
            if clock() >= again:
                if not await self._still_welcome():
                    return ACCESS
                again = self._at_once()
            if clock() >= beat:
                await self._write(BEAT)
                beat = clock() + pace.beat
            await self._sleep(min(ends, again, beat))
        return ""

    def _at_once(self) -> float:
        """When all who watch are recognised again: one list of members serves them all."""
        every = self._hub.pace.again
        return (asyncio.get_running_loop().time() // every + 1) * every

    def _news(self) -> bytes:
        now, sent = self._view.now, self._watcher.sent
        if now is None or now is sent:
            return b""
        self._watcher.sent = now
        return self._view.since(sent) if sent else event("change", everything(now), now.id)

    def _of_the_store(self) -> bytes:
        """That it does not answer, and that it does again."""
        failing = self._hub.failing
        if failing == self._watcher.failing:
            return b""
        self._watcher.failing = failing
        since, answered = failing or (None, None)
        return event("store", {"since": since, "answered": answered})

    def _why(self) -> str:
        if self._view.error:
            return GONE
        return STOPS if self._hub.stopped else ""

    async def _still_welcome(self) -> bool:
        """Whether they would be let in now, and as the same person with the same role. While the store does not answer,
        nobody knows, and there is nothing to tell them."""
        try:
            return await self._again() == self._who
        except (StoreError, Transient):
            return self._hub.failing is not None
        except TpujobError:
            return False

    async def _finish(self, why: str) -> None:
        if not why:
            return
        said: Mapping[str, Any] = self._view.error.as_json() if self._view.error else {}
        sent = self._watcher.sent
        last = _retry() + event("end", {"why": why, **said}, sent.id if sent else "")
        await self._write(last, more=False)

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        """Raises TimeoutError when the reader takes nothing for too long."""
        async with asyncio.timeout(self._hub.pace.slow):
            await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _sleep(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._watcher.wake.wait()
        except TimeoutError:
            pass

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._watcher.gone = True
        self._watcher.wake.set()


def _retry() -> bytes:
    return b"retry: %d\n\n" % random.randint(*BACK)  # noqa: S311
