"""One follower of the store for all viewers, and the views that they watch.

A view is rendered in a thread, once for all who see the same, after a change and at most `1 / least` times a second.
What is known beyond the records, such as the step of a program and money spent, is looked at every `beyond` seconds.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

from tpujob.errors import StoreError, TpujobError, Transient
from tpujob.service import Changes
from tpujob.service.job_index import Failing
from tpujob.web.live.follower import Follower, Look
from tpujob.web.live.fragments import Fragments, Snapshot, difference, event, snapshot
from tpujob.web.live.views import Asked

log = logging.getLogger(__name__)

THREADS = 2  #: that render
SHARE = 0.7  #: of a core that renderings take, at most


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds."""

    least: float = 0.25  #: between two events of a view
    beyond: float = 1.5  #: between two looks at what is known beyond the records
    beat: float = 15.0  #: of silence, then a comment keeps proxies from closing the stream
    again: float = 25.0  #: until whoever watches is recognised again
    life: float = 55 * 60.0  #: of a stream: Cloud Run cuts it off after an hour
    slow: float = 20.0  #: that a reader may take for what fits into no buffer any more
    patience: float = 1.0  #: for the first rendering; a stream begins without it after that
    stop: float = 0.2  #: between two looks whether the process is to end


class Watcher:
    """One viewer: what was sent to it last. Nothing is queued for it."""

    def __init__(self, sent: Snapshot | None) -> None:
        self.sent = sent
        self.failing: Failing | None = None  #: what it was told of the store
        self.wake = asyncio.Event()
        self.gone = False  #: its connection is closed


class View:
    """What all of its watchers see."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.now: Snapshot | None = None
        self.error: TpujobError | None = None  #: it cannot be shown any more
        self.watchers = set[Watcher]()
        self.ready = asyncio.Event()
        self.dirty = asyncio.Event()
        self.rendering = False
        self.failed = False  #: the store did not answer when it was last made
        self._encoded: dict[str, bytes] = {}

    def touched(self, look: Look) -> bool:
        """Whether it may have changed."""
        shown, asked = self.now and self.now.shown, self.asked
        if self.failed or look.jobs is None or (look.beyond and not (shown and shown.still)):
            return True
        if asked.job:
            return asked.job in look.jobs
        return bool(look.jobs)

    def publish(self, now: Snapshot | None, error: TpujobError | None = None) -> None:
        if now is not self.now or error:
            self.now, self.error = now, error
            self._encoded.clear()
            for watcher in self.watchers:
                watcher.wake.set()
        self.ready.set()

    def since(self, sent: Snapshot) -> bytes:
        """The event that leads from that state to the newest. Watchers with the same state share it."""
        assert self.now is not None
        found = self._encoded.get(sent.id)
        if found is None:
            found = event("change", difference(sent, self.now), self.now.id)
            self._encoded[sent.id] = found
        return found


class Hub:
    """Belongs to one event loop, from its first viewer on."""

    def __init__(self, changes: Changes, stopping: Callable[[], bool], pace: Pace) -> None:
        self.pace, self._changes, self._stopping = pace, changes, stopping
        self.epoch = secrets.token_hex(4)
        self.stopped = False
        self.made = 0  #: renderings
        self.failing: Failing | None = None  #: the store does not answer
        self._revision = 0
        self._free = 0.0  #: when all renderings have taken no more than their share
        self._views: dict[Hashable, View] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._follower: Follower | None = None
        self._ending: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(THREADS, "live")

    @property
    def viewers(self) -> int:
        """May be asked from any thread."""
        return sum(len(view.watchers) for view in [*self._views.values()])

    @property
    def views(self) -> int:
        return len(self._views)

    async def watch(self, asked: Asked, watcher: Watcher) -> View:
        """The view with its newest state or its error, or with neither when that takes longer than `patience`. The
        watcher is woken at each change until it leaves."""
        view = self._views.get(asked.key)
        if view is None:
            view = self._views[asked.key] = View(asked)
            self._spawn(self._keep(view))
        view.watchers.add(watcher)
        self._follow()
        try:
            async with asyncio.timeout(self.pace.patience):
                await view.ready.wait()
        except TimeoutError:
            pass
        except BaseException:
            self.leave(view, watcher)
            raise
        return view

    def leave(self, view: View, watcher: Watcher) -> None:
        view.watchers.discard(watcher)
        if not view.watchers:
            self._forget(view)
        if not self._views and self._follower:
            self._follower.stop()
            self._follower = None

    # Views -----------------------------------------------------------------------------------------------------------

    async def _keep(self, view: View) -> None:
        """Render it whenever it may have changed, until nobody watches or it cannot be shown."""
        clock = asyncio.get_running_loop().time
        while view.watchers and not view.error:
            view.dirty.clear()
            began = clock()
            await self._render(view)
            await view.dirty.wait()
            while (at := max(began + self.pace.least, self._free)) > clock():
                await asyncio.sleep(at - clock())
        self._forget(view)

    async def _render(self, view: View) -> None:
        loop, revision = asyncio.get_running_loop(), self._revision
        view.rendering = True
        try:
            shown, cost = await loop.run_in_executor(self._threads, self._shown, view)
            self._free = max(self._free, loop.time()) + cost / SHARE
            self.made += 1
            view.failed = False
            view.publish(snapshot(shown, self.epoch, revision, view.now))
        except TpujobError as error:
            self._not_shown(view, error)
        except Exception:
            log.exception("a live view failed: %s", ascii(str(view.asked.key)[:200]))
            failed = TpujobError("the backend failed to show this page", hint="its log says more")
            view.publish(None, failed)
        finally:
            view.rendering = False
        if view.error:
            self._forget(view)
            view.dirty.set()

    def _not_shown(self, view: View, error: TpujobError) -> None:
        """While the store does not answer, what was shown stays; it is made again at the next look."""
        gone = isinstance(error, StoreError | Transient)
        if gone and view.now and (self._changes.failing or not view.failed):
            view.failed = True
            self._changes.poke()
        else:
            view.publish(None, error)

    def _shown(self, view: View) -> tuple[Fragments, float]:
        """With the seconds of CPU that it took."""
        began = time.thread_time()
        # the follower may have begun for the sake of a new view, and have seen nothing yet; for the others the store
        # is asked once, however many there are
        with self._changes.followed() if view.now else nullcontext():
            shown = view.asked.render()
        return shown, time.thread_time() - began

    def _forget(self, view: View) -> None:
        """Who comes next gets a new one."""
        if self._views.get(view.asked.key) is view:
            del self._views[view.asked.key]
        view.dirty.set()

    # The process -----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        if self._follower is None:
            self._follower = Follower(self._changes, self.pace.beyond, self._told)
        if self._ending is None or self._ending.done():
            self._ending = self._spawn(self._watch_the_end())

    def _told(self, look: Look) -> None:
        self._revision = max(self._revision, look.revision)
        for view in self._views.values():
            if not view.dirty.is_set() and view.touched(look):
                view.dirty.set()
        if self.failing != look.failing:
            self.failing = look.failing
            self._wake_all()

    def _wake_all(self) -> None:
        for view in [*self._views.values()]:
            for watcher in view.watchers:
                watcher.wake.set()

    async def _watch_the_end(self) -> None:
        """Once the process is to end, every viewer is told."""
        while self._views and not self._stopping():
            await asyncio.sleep(self.pace.stop)
        self.stopped = self._stopping()
        if self.stopped:
            self._wake_all()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
