"""Ships the output of an attempt to the bucket, in numbered segments."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from typing import Callable, Deque, List, Optional

from tpujob.agent.ship.evidence import TAIL, TAIL_WIDTH
from tpujob.agent.ship.redact import Redactor
from tpujob.agent.storage import Storage, StorageError
from tpujob.protocol.limits import LAST_SEGMENT, LONGEST_LINE

CHUNK = 1024 * 1024  #: bytes of log that are shipped at once, at most
SMALL_SEGMENT = 256 * 1024  #: bytes up to which the newest log segment is written again, longer
SHIP_EVERY = 2.0  #: seconds that a line waits, at most
IN_MEMORY = 4  #: chunks that wait for the storage in memory; more wait on disk

Hear = Callable[[List[bytes]], None]


class Chunk:
    """Whole lines that wait to be shipped, in memory or in a file."""

    def __init__(self, data: bytes, lines: int, head: bool) -> None:
        self.data, self.size, self.lines, self.head = data, len(data), lines, head
        self.file = ""
        self.condemned = False  #: dropped while it was on its way

    def content(self) -> bytes:
        if not self.file:
            return self.data
        try:
            with open(self.file, "rb") as file:
                return file.read()
        except OSError:
            return b""

    def discard(self) -> None:
        if self.file:
            with contextlib.suppress(OSError):
                os.unlink(self.file)


class Log:
    """The output of an attempt, each line with its time. The program never waits for it: what the storage does not take
    yet waits on disk, and of more than `limit` bytes the middle is dropped."""

    def __init__(
        self,
        storage: Storage,
        path_of: Callable[[int], str],
        folder: str,
        limit: int,
        redactor: Redactor,
    ) -> None:
        """`path_of` gives the path of a segment. What `redactor` knows is in no line."""
        self._storage, self._path_of, self._folder = storage, path_of, folder
        self.redactor = redactor
        self._half = limit // 2
        os.makedirs(folder, exist_ok=True)
        self._change = threading.Condition()
        self._tail: Deque[bytes] = collections.deque(maxlen=TAIL)
        self.count = 0  #: lines so far
        self._buffer: List[bytes] = []
        self._buffered = self._buffered_lines = self._spilled = 0
        self._last_cut = time.monotonic()
        self._queue: Deque[Chunk] = collections.deque()
        self._flying: Optional[Chunk] = None  #: out of the queue, and not yet in a segment
        self._head_bytes = self._tail_bytes = 0
        self._shipped: Deque[List[int]] = collections.deque()  #: of the tail: number, bytes, lines
        self._doomed: List[int] = []  #: segments to be deleted
        self._dropped = self._marked = 0  #: lines; those that the marker counts
        self._marker = self._number = 0
        self._newest = b""  #: content of the newest segment while it may grow
        self._time = self._marker_time = 0.0
        self._closing = False
        self._done = threading.Event()
        threading.Thread(target=self._ship, name="ship", daemon=True).start()

    def note(self, text: str, tag: str = "[tpujob] ") -> None:
        """Add a line of the agent's own."""
        self._add([self.redactor.redact((tag + text).encode("utf-8", "replace"))], b"")

    def tail(self) -> List[bytes]:
        """The newest lines, cut short."""
        with self._change:
            return list(self._tail)

    def since(self, count: int) -> List[bytes]:
        """The lines after that number, as far as they are kept, cut short."""
        with self._change:
            fresh = min(self.count - count, len(self._tail))
            return list(self._tail)[len(self._tail) - fresh :]

    def follow(
        self, descriptor: int, tag: bytes = b"", hear: Optional[Hear] = None
    ) -> threading.Thread:
        """Read a pipe to its end, on a thread of its own; `hear` gets the lines, too."""
        thread = threading.Thread(target=self._pump, args=(descriptor, tag, hear), daemon=True)
        thread.start()
        return thread

    def finish(self, patience: float) -> bool:
        """Ship the rest, as nothing more comes. False: not in time; it goes on."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        return self._done.wait(patience)

    def _pump(self, descriptor: int, tag: bytes, hear: Optional[Hear]) -> None:
        def take(lines: List[bytes]) -> None:
            lines = self._add(lines, tag)
            if hear is not None:
                hear(lines)

        stream, rest, drawn = self.redactor.stream(), b"", time.monotonic()
        while True:
            data = os.read(descriptor, 64 * 1024)
            if not data:
                break
            data = stream.feed(data)
            whole, newline, rest = (rest + data).replace(b"\r\n", b"\n").rpartition(b"\n")
            lines = whole.split(b"\n") if newline else []
            turn = rest.rfind(b"\r", 0, -1)  # not the last byte: what follows may make it an end
            if turn >= 0:  # a progress bar: what is drawn over is shown now and then
                if time.monotonic() - drawn > 5:
                    drawn = time.monotonic()
                    lines.append(rest[:turn])
                rest = rest[turn + 1 :]
            while len(rest) > LONGEST_LINE:
                lines.append(rest[:LONGEST_LINE])
                rest = rest[LONGEST_LINE:]
            if lines:
                take(lines)
        rest += stream.rest()
        if rest:
            take([rest])
        os.close(descriptor)

    def _add(self, lines: List[bytes], tag: bytes) -> List[bytes]:
        """Returns the lines as a person would see them."""
        lines = [_visible(line) if b"\r" in line else line for line in lines]
        if max(map(len, lines)) > LONGEST_LINE:
            lines = [piece for line in lines for piece in _pieces(line)]
        with self._change:
            self._time = max(self._time, time.time())
            stamp = b"%.3f " % self._time + tag
            self.count += len(lines)
            self._tail.extend([tag + line[:TAIL_WIDTH] for line in lines[-TAIL:]])
            self._buffer.append(stamp + (b"\n" + stamp).join(lines) + b"\n")
            self._buffered += len(self._buffer[-1])
            self._buffered_lines += len(lines)
            if self._buffered >= CHUNK:
                self._cut()
        return lines

    def _cut(self) -> None:
        """Turn the buffer into a chunk in the queue; beyond the limit the oldest of the tail is dropped."""
        if not self._buffer:
            return
        head = self._head_bytes < self._half
        chunk = Chunk(b"".join(self._buffer), self._buffered_lines, head)
        self._buffer, self._buffered, self._buffered_lines = [], 0, 0
        self._last_cut = time.monotonic()
        if len(self._queue) >= IN_MEMORY and not self._spill(chunk):
            self._dropped += chunk.lines
            return
        self._queue.append(chunk)
        if head:
            self._head_bytes += chunk.size
        else:
            self._tail_bytes += chunk.size
            while self._tail_bytes > self._half and self._drop_oldest():
                pass
        self._change.notify_all()

    def _spill(self, chunk: Chunk) -> bool:
        self._spilled += 1
        chunk.file = os.path.join(self._folder, "%d" % self._spilled)
        try:
            with open(chunk.file, "wb") as file:
                file.write(chunk.data)
        except OSError:  # no space: the program goes on
            chunk.discard()
            return False
        chunk.data = b""
        return True

    def _drop_oldest(self) -> bool:
        if self._shipped:
            number, size, lines = self._shipped.popleft()
            self._doomed.append(number)
            if number == self._number:
                self._newest = b""
            self._tail_bytes -= size
            self._dropped += lines
            return True
        flying = self._flying
        if flying is not None and not flying.head and not flying.condemned:
            flying.condemned = True  # older than what is in the queue
            self._count_out(flying)
            return True
        chunk = next((c for c in self._queue if not c.head), None)
        if chunk is not None:
            self._queue.remove(chunk)
            self._forget(chunk)
        return chunk is not None

    def _ship(self) -> None:
        while True:
            with self._change:
                chunk = self._next()
                closed = self._closing and chunk is None
            if chunk is not None:
                self._place(chunk)
            self._tidy(closed)
            if closed:
                return self._done.set()

    def _next(self) -> Optional[Chunk]:
        """The next chunk, as soon as there is one or the buffer is old enough; None now and then, and at the end."""
        left = self._last_cut + SHIP_EVERY - time.monotonic()
        if not self._queue and not self._closing:
            self._change.wait(max(0.05, left) if self._buffer else SHIP_EVERY)
        old = time.monotonic() - self._last_cut >= SHIP_EVERY
        if not self._queue and (old or self._closing):
            self._cut()
            self._last_cut = time.monotonic()
        self._flying = self._queue.popleft() if self._queue else None
        return self._flying

    def _place(self, chunk: Chunk) -> None:
        """Ship one chunk: to the end of the newest segment while that is small, else as a new one."""
        data = chunk.content()
        with self._change:
            if not self._marker and not chunk.head:
                self._reserve_marker(float(data.partition(b" ")[0] or 0))
            grows = bool(self._newest) and len(self._newest) + len(data) <= SMALL_SEGMENT
            if not grows and self._number >= LAST_SEGMENT:
                self._flying = None
                if not chunk.condemned:
                    self._forget(chunk)
                return
            self._number += 0 if grows else 1
            self._newest = self._newest + data if grows else data
            number, content = self._number, self._newest
        self._insist(lambda: self._storage.put(self._path_of(number), content))
        chunk.discard()
        with self._change:
            self._flying = None
            if chunk.head:
                return
            if chunk.condemned:
                self._doomed.append(number)
                self._newest = b"" if number == self._number else self._newest
            elif not grows:
                self._shipped.append([number, chunk.size, chunk.lines])
            elif self._shipped and self._shipped[-1][0] == number:
                self._shipped[-1][1] += chunk.size
                self._shipped[-1][2] += chunk.lines
            else:  # the segment was given up while it grew
                self._forget(chunk)

    def _forget(self, chunk: Chunk) -> None:
        chunk.discard()
        self._count_out(chunk)

    def _count_out(self, chunk: Chunk) -> None:
        self._dropped += chunk.lines
        self._tail_bytes -= 0 if chunk.head else chunk.size

    def _reserve_marker(self, at: float) -> None:
        """Between head and tail, so that the number of dropped lines has its place."""
        self._number += 1
        self._marker, self._marker_time, self._newest = self._number, at, b""

    def _tidy(self, last: bool) -> None:
        """Delete what was dropped, then say how much: one marker line stands for it."""
        with self._change:
            doomed, self._doomed = self._doomed, []
            dropped, due = self._dropped, self._dropped > self._marked and (last or not self._queue)
            if due and not self._marker:
                self._reserve_marker(self._time)
            text = "%.3f [tpujob] %d lines were dropped here\n" % (self._marker_time, dropped)
        for number in doomed:
            self._insist(lambda number=number: self._storage.delete(self._path_of(number)))
        if due:
            self._insist(lambda: self._storage.put(self._path_of(self._marker), text.encode()))
            self._marked = dropped

    def _insist(self, do: Callable[[], None]) -> None:
        delay = 0.5
        while True:
            try:
                return do()
            except StorageError:
                time.sleep(delay)
                delay = min(delay * 2, 5)


def _visible(line: bytes) -> bytes:
    """What a terminal would show of a line that was drawn over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _pieces(line: bytes) -> List[bytes]:
    return [line[i : i + LONGEST_LINE] for i in range(0, max(1, len(line)), LONGEST_LINE)]
