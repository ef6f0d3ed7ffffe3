"""The output of an attempt: its lines are numbered, kept for a while, and shipped to the bucket, many at once."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from typing import Callable, Deque, List, Optional, Tuple

from tpujob.agent.storage import Storage
from tpujob.agent.upload.evidence import TAIL, TAIL_WIDTH
from tpujob.agent.upload.redact import Redactor
from tpujob.agent.upload.spool import Chunk, Segments, Spool
from tpujob.protocol import live
from tpujob.protocol.limits import LONGEST_LINE
from tpujob.protocol.live import TailMessage

CHUNK = 4 * 1024 * 1024  #: bytes that are shipped as soon as they wait
CHUNKS = 8  #: that the limit of a log is, at least, so that it can be cut between two
SOON = 5.0  #: seconds that a line waits, at most, once the host is about to be taken away

Hear = Callable[[List[bytes]], None]


class Log:
    """Each line with its time and its number. The program never waits for it: what the storage does not take yet waits
    in memory, and of more than `limit` bytes the middle is dropped."""

    def __init__(
        self,
        storage: Storage,
        path_of: Callable[[int], str],
        begun: str,
        limit: int,
        redactor: Redactor,
        every: float,
    ) -> None:
        """`path_of` gives the path of a segment; `begun`: a file that outlives this process; `every`: seconds that a
        line waits to be shipped, at most. What `redactor` knows is in no line."""
        self.redactor, self._every = redactor, every
        self._chunk = min(CHUNK, max(1, limit // CHUNKS))
        self._segments = Segments(storage, path_of)
        self._change = threading.Condition()
        self._spool = Spool(limit)
        self._tail: Deque[bytes] = collections.deque(maxlen=TAIL)
        self.count = 0  #: lines so far
        self._buffer: List[Tuple[int, int, bytes]] = []  #: first line, lines, and they
        self._buffered = 0  #: bytes
        self._since = self._time = 0.0  #: of the buffer, monotonic; of the newest line
        self._asked = self._closing = False  #: what waits is to be shipped now
        self._closed = False
        self._begun = begun
        self._go_on()
        self._done = threading.Event()
        threading.Thread(target=self._ship, name="ship", daemon=True).start()

    def note(self, text: str, tag: str = "[tpujob] ") -> None:
        """Add a line of the agent's own."""
        line = self.redactor.redact((tag + text).encode("utf-8", "replace"))
        self._add([line], b"")
        if self._done.is_set():  # the log has ended: the line goes to `agent.log`
            with contextlib.suppress(OSError):
                os.write(1, line + b"\n")

    def tail(self) -> List[bytes]:
        """Return the newest lines, cut short."""
        with self._change:
            return list(self._tail)

    def since(self, count: int) -> List[bytes]:
        """Return the lines after that number, as far as they are kept, cut short."""
        with self._change:
            fresh = min(self.count - count, len(self._tail))
            return list(self._tail)[len(self._tail) - fresh :]

    def pending(self, host: int, after: int, most: int = live.MOST) -> TailMessage:
        """Return the lines after that number which are not in the bucket yet, about `most` bytes of them."""
        with self._change:
            waiting = [(chunk.first, chunk.lines, chunk.data) for chunk in self._spool.waiting]
            waiting += self._buffer
            settled = waiting[0][0] - 1 if waiting else self.count
        after = max(after, settled)
        parts: List[bytes] = []
        line, count = after + 1, 0
        for first, lines, data in waiting:
            if first + lines <= after + 1:
                continue
            if parts and (most <= 0 or first != line + count):
                break  # what follows dropped lines comes with the next message
            begin, more, data = _after(data, first, after, most)
            line, count, most = line if parts else begin, count + more, most - len(data)
            parts.append(data)
        return TailMessage(host, after, line, count, settled, b"".join(parts))

    def follow(
        self, descriptor: int, tag: bytes = b"", hear: Optional[Hear] = None
    ) -> threading.Thread:
        """Read a pipe to its end, on a thread of its own; `hear` gets the lines, too."""
        thread = threading.Thread(target=self._pump, args=(descriptor, tag, hear), daemon=True)
        thread.start()
        return thread

    def ship(self, doomed: bool = False) -> None:
        """Send what there is to the bucket now, and if the host is `doomed`, later lines soon after."""
        with self._change:
            self._asked = True
            if doomed:
                self._every = min(self._every, SOON)
            self._change.notify_all()

    def finish(self, patience: float) -> bool:
        """Ship the rest, as nothing more comes. False: not in time; it continues."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        return self._done.wait(patience)

    def _pump(self, descriptor: int, tag: bytes, hear: Optional[Hear]) -> None:
        def take(lines: List[bytes]) -> None:
            lines = self._add(lines, tag)
            if hear is not None:
                hear(lines)

        redact, rest, drawn = self.redactor.redact, b"", time.monotonic()
        # where so much has come of a line, values that begin in its first piece are whole
        most = LONGEST_LINE + self.redactor.longest
        while True:
            data = os.read(descriptor, 64 * 1024)
            if not data:
                break
            whole, newline, rest = (rest + data).replace(b"\r\n", b"\n").rpartition(b"\n")
            lines = redact(whole).split(b"\n") if newline else []
            turn = rest.rfind(b"\r", 0, -1)  # not the last byte: what follows may make it an end
            if turn >= 0:  # a progress bar: what is drawn over is shown now and then
                if time.monotonic() - drawn > 5:
                    drawn = time.monotonic()
                    lines.append(redact(rest[:turn]))
                rest = rest[turn + 1 :]
            rest = redact(rest) if len(rest) > most else rest
            while len(rest) > most:
                lines.append(rest[:LONGEST_LINE])
                rest = rest[LONGEST_LINE:]
            if lines:
                take(lines)
        if rest:
            take([redact(rest)])
        os.close(descriptor)

    def _add(self, lines: List[bytes], tag: bytes) -> List[bytes]:
        """Returns the lines as a person would see them."""
        lines = [_visible(line) if b"\r" in line else line for line in lines]
        if max(map(len, lines)) > LONGEST_LINE:
            lines = [piece for line in lines for piece in _pieces(line)]
        with self._change:
            self._time = max(self._time, time.time())
            stamp = b"%.3f " % self._time + tag
            if not self._buffer:
                self._since = time.monotonic()
                self._change.notify_all()
            data = stamp + (b"\n" + stamp).join(lines) + b"\n"
            self._buffer.append((self.count + 1, len(lines), data))
            self.count += len(lines)
            self._tail.extend([tag + line[:TAIL_WIDTH] for line in lines[-TAIL:]])
            self._buffered += len(data)
            if self._buffered >= self._chunk:
                self._cut()
        return lines

    def _cut(self) -> None:
        """What is in the buffer waits to be shipped."""
        if self._buffer:
            first = self._buffer[0][0]
            data = b"".join(data for _, _, data in self._buffer)
            self._buffer, self._buffered = [], 0
            self._spool.add(data, first, self.count - first + 1)
            self._change.notify_all()

    def _ship(self) -> None:
        while True:
            with self._change:
                chunk = self._next()
                closed = self._closing and chunk is None
            if chunk is not None:
                self._remember(chunk)
                number = self._segments.write(chunk)
                with self._change:
                    self._spool.shipped(chunk, number)
            self._tidy(closed)
            if closed:
                return self._done.set()

    def _remember(self, chunk: Chunk) -> None:
        """Write where the log goes on behind this chunk, before it is handed over: this agent may die once the bucket
        has it. The numbers of two segments are taken: of its own, and of the marker that may come with it."""
        with contextlib.suppress(OSError):
            with open(self._begun + ".new", "w") as file:
                file.write("%d %d" % (chunk.first + chunk.lines - 1, self._segments.number + 2))
            os.replace(self._begun + ".new", self._begun)

    def _go_on(self) -> None:
        """Continue behind what an earlier agent of this attempt had handed over; lines that it lost leave a gap."""
        with contextlib.suppress(OSError, ValueError), open(self._begun) as file:
            self.count, number = map(int, file.read().split())
            self._segments.go_on(self.count + 1, number)

    def _next(self) -> Optional[Chunk]:
        """The oldest chunk, as soon as there is one or the buffer is old enough; None now and then, and at the end."""
        if not self._spool.waiting and not self._due():
            left = self._since + self._every - time.monotonic()
            self._change.wait(max(0.05, left) if self._buffer else self._every)
        if not self._spool.waiting and self._due():
            self._cut()
        self._asked = self._asked and bool(self._buffer)
        if self._closing and self.count and not self._buffer and not self._closed:
            self._closed = True  # the end of a log says that it is one
            self._spool.close(self.count + 1)
        return self._spool.waiting[0] if self._spool.waiting else None

    def _due(self) -> bool:
        """Whether what is in the buffer is to be shipped."""
        old = bool(self._buffer) and time.monotonic() - self._since >= self._every
        return old or self._asked or self._closing

    def _tidy(self, last: bool) -> None:
        """Delete what was dropped, then report how much."""
        with self._change:
            doomed, self._spool.doomed = self._spool.doomed, []
            dropped, due = self._spool.dropped, last or not self._spool.waiting
        for number in doomed:
            self._segments.delete(number)
        if due:
            self._segments.mark(dropped, self._time)


def _after(data: bytes, first: int, after: int, most: int) -> Tuple[int, int, bytes]:
    """Of whole lines, the first with that number, those after a line, about `most` bytes: number of the first, how
    many, and they."""
    begin = 0
    for _ in range(max(0, after - first + 1)):
        begin = data.find(b"\n", begin) + 1
    end = len(data)
    if end - begin > most:
        end = data.find(b"\n", begin + most) + 1
    data = data[begin:end]
    return max(first, after + 1), data.count(b"\n"), data


def _visible(line: bytes) -> bytes:
    """What a terminal would show of a line that was drawn over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _pieces(line: bytes) -> List[bytes]:
    return [line[i : i + LONGEST_LINE] for i in range(0, max(1, len(line)), LONGEST_LINE)]
