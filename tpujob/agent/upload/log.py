"""The log of an attempt: numbers the lines of output, buffers them, and uploads them to the bucket in segments."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from typing import Callable, Deque, List, Optional, Tuple

from tpujob.agent.storage import Storage
from tpujob.agent.upload.evidence import TAIL, TAIL_WIDTH, TailLine, last_words
from tpujob.agent.upload.redact import Redactor
from tpujob.agent.upload.spool import Chunk, Segments, Spool
from tpujob.lib.threads import start_loop
from tpujob.protocol import live
from tpujob.protocol.limits import MAX_LINE
from tpujob.protocol.live import TailMessage

CHUNK = 4 * 1024 * 1024  #: bytes that are uploaded without waiting for more
CHUNKS = 8  #: least number of chunks in the limit of a log, as whole chunks are dropped
SOON = 5.0  #: most seconds that a line waits for its upload after a notice

Consumer = Callable[[List[bytes]], None]


class Log:
    """The log of an attempt, in which each line has a time and a number. The program never waits for it: lines that the
    storage does not accept yet stay in memory, and beyond `limit` bytes the middle is dropped."""

    def __init__(
        self,
        storage: Storage,
        path_of: Callable[[int], str],
        begun: str,
        limit: int,
        redactor: Redactor,
        every: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`path_of` returns the path of a segment. `begun` is a file that outlives this process. A line waits at most
        `every` seconds for its upload. Lines are redacted."""
        self.redactor, self._every, self._clock = redactor, every, clock
        self._chunk = min(CHUNK, max(1, limit // CHUNKS))
        self._segments = Segments(storage, path_of)
        self._change = threading.Condition()
        self._spool = Spool(limit)
        self._tail: Deque[TailLine] = collections.deque(maxlen=TAIL)
        self.count = 0  #: lines so far
        self.read = 0  #: bytes of output whose whole lines are among them
        self._buffer: List[Tuple[int, int, bytes]] = []  #: first line, number of lines, text
        self._buffered = 0  #: bytes
        self._buffered_at = 0.0  #: the oldest line in the buffer, monotonic
        self._time = 0.0  #: of the newest line
        self._flush_requested = False  #: upload the buffer now
        self._closing = False  #: no more lines come
        self._closed = False
        self._begun = begun
        self._continue_earlier_log()
        self._done = threading.Event()
        start_loop("ship", self._upload_forever)

    def note(self, text: str, tag: str = "[tpujob] ") -> None:
        """Add a line of the agent."""
        line = self.redactor.redact(text.encode("utf-8", "replace"))
        self._add([line], tag.encode())
        if self._done.is_set():  # after the end of the log the line goes to `agent.log`
            with contextlib.suppress(OSError):
                os.write(1, tag.encode() + line + b"\n")

    def tail(self) -> List[TailLine]:
        """Return the newest TAIL lines, each cut to TAIL_WIDTH bytes."""
        with self._change:
            return list(self._tail)

    def reason(self, tag: bytes) -> str:
        """Return `: ` and the line that says why the command with this tag failed; empty: it printed nothing."""
        line = last_words(self.tail(), tag)
        return ": " + line if line else ""

    def since(self, count: int) -> List[bytes]:
        """Return the lines of `tail` after the first `count` lines of the log."""
        with self._change:
            new = min(self.count - count, len(self._tail))
            return [line.tag + line.text for line in list(self._tail)[len(self._tail) - new :]]

    def pending(self, host: int, after: int) -> TailMessage:
        """Return the lines after line `after` that are not in the bucket yet, about `MAX_MESSAGE` bytes of them."""
        room = live.MAX_MESSAGE
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
            if parts and (room <= 0 or first != line + count):
                break  # lines after dropped lines come with the next message
            data = _lines_after(data, first, after, room)
            if not parts:
                line = max(first, after + 1)
            count += data.count(b"\n")
            room -= len(data)
            parts.append(data)
        return TailMessage(host, after, line, count, settled, b"".join(parts))

    def read_pipe(
        self, descriptor: int, tag: bytes = b"", consume: Optional[Consumer] = None
    ) -> threading.Thread:
        """Add the lines of a pipe to its end, on the thread that is returned; `consume` gets the lines, too."""
        return start_loop("output", lambda: self._pump(descriptor, tag, consume))

    def flush(self, soon: bool = False) -> None:
        """Start the upload of all lines. `soon`: from now on a line waits at most SOON."""
        with self._change:
            self._flush_requested = True
            if soon:
                self._every = min(self._every, SOON)
            self._change.notify_all()

    def finish(self, patience: float) -> bool:
        """Upload the remaining lines; the log ends. Return whether that is done in time; otherwise it continues."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        return self._done.wait(patience)

    def _pump(self, descriptor: int, tag: bytes, consume: Optional[Consumer]) -> None:
        def take(lines: List[bytes]) -> None:
            lines = self._add(lines, tag)
            if consume is not None:
                consume(lines)

        redact, rest, shown_at = self.redactor.redact, b"", time.monotonic()
        # beyond this length, a secret that begins in the first piece of a line is complete
        limit = MAX_LINE + self.redactor.longest
        while True:
            data = os.read(descriptor, 64 * 1024)
            if not data:
                break
            whole, newline, rest = (rest + data).replace(b"\r\n", b"\n").rpartition(b"\n")
            lines = redact(whole).split(b"\n") if newline else []
            bar_end = rest.rfind(b"\r", 0, -1)  # a last `\r` may be half of a `\r\n`
            if bar_end >= 0:  # a progress bar: shown every five seconds
                if time.monotonic() - shown_at > 5:
                    shown_at = time.monotonic()
                    lines.append(redact(rest[:bar_end]))
                rest = rest[bar_end + 1 :]
            rest = redact(rest) if len(rest) > limit else rest
            while len(rest) > limit:
                lines.append(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]
            if lines:
                take(lines)
            self.read += len(data)
        if rest:
            take([redact(rest)])
        os.close(descriptor)

    def _add(self, lines: List[bytes], tag: bytes) -> List[bytes]:
        """Add lines, and return them as a terminal would show them, with long lines split."""
        lines = [_visible(line) if b"\r" in line else line for line in lines]
        if max(map(len, lines)) > MAX_LINE:
            lines = [piece for line in lines for piece in _split(line)]
        with self._change:
            self._time = max(self._time, self._clock())
            stamp = b"%.3f " % self._time + tag
            if not self._buffer:
                self._buffered_at = time.monotonic()
                self._change.notify_all()
            data = stamp + (b"\n" + stamp).join(lines) + b"\n"
            self._buffer.append((self.count + 1, len(lines), data))
            self.count += len(lines)
            newest = lines[-TAIL:]
            self._tail.extend([TailLine(line[:TAIL_WIDTH], self._time, tag) for line in newest])
            self._buffered += len(data)
            if self._buffered >= self._chunk:
                self._move_buffer_to_spool()
        return lines

    def _move_buffer_to_spool(self) -> None:
        if self._buffer:
            first = self._buffer[0][0]
            data = b"".join(data for _, _, data in self._buffer)
            self._buffer, self._buffered = [], 0
            self._spool.add(data, first, self.count - first + 1)
            self._change.notify_all()

    def _upload_forever(self) -> None:
        while True:
            with self._change:
                chunk = self._next_chunk()
                closed = self._closing and chunk is None
            if chunk is not None:
                self._save_position(chunk)
                number = self._segments.write(chunk)
                with self._change:
                    self._spool.note_uploaded(chunk, number)
            self._delete_dropped(closed)
            if closed:
                return self._done.set()

    def _save_position(self, chunk: Chunk) -> None:
        """Save the last line and segment number after this chunk, before its upload, as the agent may die after it. The
        chunk may take two numbers: its segment's, and the marker's of dropped lines."""
        with contextlib.suppress(OSError):
            with open(self._begun + ".new", "w") as file:
                file.write("%d %d" % (chunk.first + chunk.lines - 1, self._segments.number + 2))
            os.replace(self._begun + ".new", self._begun)

    def _continue_earlier_log(self) -> None:
        """Continue the line and segment numbers of an earlier agent of this attempt, after its saved position."""
        with contextlib.suppress(OSError, ValueError), open(self._begun) as file:
            self.count, number = map(int, file.read().split())
            self._segments.continue_after(self.count, number)

    def _next_chunk(self) -> Optional[Chunk]:
        """Wait for lines, and return the oldest chunk; None if none came, and at the end of the log."""
        if not self._spool.waiting and not self._is_due():
            left = self._buffered_at + self._every - time.monotonic()
            self._change.wait(max(0.05, left) if self._buffer else self._every)
        if not self._spool.waiting and self._is_due():
            self._move_buffer_to_spool()
        self._flush_requested = self._flush_requested and bool(self._buffer)
        if self._closing and self.count and not self._buffer and not self._closed:
            self._closed = True
            self._spool.close(self.count + 1)
        return self._spool.waiting[0] if self._spool.waiting else None

    def _is_due(self) -> bool:
        """Return whether the buffer must be uploaded now."""
        is_old = bool(self._buffer) and time.monotonic() - self._buffered_at >= self._every
        return is_old or self._flush_requested or self._closing

    def _delete_dropped(self, is_last: bool) -> None:
        """Delete dropped segments, and update the marker of dropped lines unless chunks wait."""
        with self._change:
            numbers, self._spool.to_delete = self._spool.to_delete, []
            dropped = self._spool.dropped
            update_marker = is_last or not self._spool.waiting
        for number in numbers:
            self._segments.delete(number)
        if update_marker:
            self._segments.mark(dropped, self._time)


def _lines_after(data: bytes, first: int, after: int, limit: int) -> bytes:
    """Return the lines of `data` after line `after`, about `limit` bytes; line `first` is its first."""
    begin = 0
    for _ in range(max(0, after - first + 1)):
        begin = data.find(b"\n", begin) + 1
    end = len(data)
    if end - begin > limit:
        end = data.find(b"\n", begin + limit) + 1
    return data[begin:end]


def _visible(line: bytes) -> bytes:
    """Return the part of a line that a terminal shows after carriage returns."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _split(line: bytes) -> List[bytes]:
    return [line[i : i + MAX_LINE] for i in range(0, max(1, len(line)), MAX_LINE)]
