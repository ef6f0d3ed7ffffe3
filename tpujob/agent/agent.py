"""What runs on a host: brings it to its plan, keeps the program's log and reports, and stops it when told to.

One file, standard library only, Python 3.8, as it is copied to hosts by itself. `start PLAN`, `stop --grace S` and
`status` print one line of JSON and end; the work is done by a detached daemon, one for each attempt. Everything lies
below `~/.tpujob`; an attempt's `state.json` is its record, and the lock beside it tells whether its daemon lives.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import glob
import hashlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Deque, Dict, Generator, List, Optional, Set, Tuple, cast

ROOT = os.path.join(os.path.expanduser("~"), ".tpujob")
ATTEMPTS = os.path.join(ROOT, "attempts")

KILL_PATIENCE = 30.0  #: seconds for a process to go after SIGKILL, and for a device to be let go
FETCH_PATIENCE = 600.0  #: seconds that a bundle is asked for while the storage is away
FINAL_PATIENCE = 600.0  #: seconds that the last report and the rest of the log are tried
FLUSH = 60.0  #: seconds that the last report waits for the log
FLUSH_DOOMED = 5.0  #: the same when the host is about to be taken away
LONGEST_LINE = 64 * 1024  #: bytes; a longer line becomes several
CHUNK = 1024 * 1024  #: bytes of log that are shipped at once, at most
SMALL_SEGMENT = 256 * 1024  #: bytes up to which the newest log segment is written again, longer
SHIP_EVERY = 2.0  #: seconds that a line waits, at most
IN_MEMORY = 4  #: chunks that wait for the storage in memory; more wait on disk
LAST_SEGMENT = 99_999  #: five digits, so that names sort as numbers do
MAX_EVENTS = 16 * 1024 * 1024  #: bytes of `events.jsonl` that are kept, its end
TAIL, TAIL_WIDTH = 2000, 400  #: lines of output that are kept for evidence, and bytes of each
LAST_WORDS = 15  #: lines of evidence of a program that ended without a traceback
MAX_EVIDENCE = 8 * 1024  #: bytes of a report's body
MAX_METADATA = 7 * 1024  #: bytes of a report; Cloud Storage takes 8 KiB of metadata
MAX_FILES, MAX_UNPACKED = 200_000, 4 * 1024**3  #: of a bundle
PROBLEM_MEANS = {401: "PERMISSION", 403: "PERMISSION"}  #: HTTP status of a bundle -> cause

INTERRUPTED = 75  #: the exit code of a program that was told to stop, and saved
#: what a report takes from a state
SAID = ("job", "attempt", "phase", "exit_code", "error", "cause", "notice")
#: those that a daemon hears; SIGCHLD and SIGUSR1 only wake it, the last two are no reason to end
SIGNALS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)

#: lines that may name the cause of an end; `domain/triage.py` says which one
TELLING = re.compile(
    rb"iommu|/dev/(?:vfio|accel)|libtpu|TPU is already|No accelerator found|resource busy"
    rb"|FAILED_PRECONDITION|Failed to initialize|initialization failed|all TPU hosts|uncorrectable"
    rb"|RESOURCE_EXHAUSTED|out of memory|memory space|hbm capacity|device buffer|MemoryError"
    rb"|bad_alloc|allocate memory|killed|No module named|not found$|\[tpujob\] |No space left"
    rb"|does not have storage|PERMISSION_DENIED|PollForError|coordination|unhealthy|heartbeat"
    rb"|barrier|by peer|by remote peer|another task|^\S*(?:Error|Exception)\b",
    re.IGNORECASE,
)
TRACEBACK = b"Traceback (most recent call last)"

Record = Dict[str, Any]


class Failure(Exception):
    """The attempt cannot go on: a sentence for a person and a cause of tpujob's list."""

    def __init__(self, message: str, cause: str = "SETUP") -> None:
        super().__init__(message)
        self.cause = cause


class Stopped(Exception):
    """Told to stop before the program was started."""


# Files and locks -----------------------------------------------------------------------------------------------------


def read_json(path: str) -> Record:
    """Empty when there is none, or it is no object."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return cast(Record, record) if isinstance(record, dict) else {}


def write_json(path: str, record: Record) -> None:
    """Whole or not at all."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(temporary, path)


def take_lock(path: str, patience: float) -> Optional[int]:
    """The lock's descriptor: the lock lasts until it is closed, or its process ends. None: not in time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
            time.sleep(0.02)


def is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def command_lock() -> Generator[None, None, None]:
    """One command at a time decides what becomes of this host."""
    os.makedirs(ATTEMPTS, mode=0o700, exist_ok=True)
    descriptor = take_lock(os.path.join(ROOT, "command.lock"), 60)
    if descriptor is None:
        raise Failure("another start or stop has been at it for a minute")
    try:
        yield
    finally:
        os.close(descriptor)


# Processes -----------------------------------------------------------------------------------------------------------


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""


def family(folder: str, session: int = 0) -> Set[int]:
    """The live processes of an attempt (or, with the folder above, of all): those that carry its folder in their
    environment, those of its session, and the descendants of both. Never this process."""
    marker = b"TPUJOB_OUT=" + os.fsencode(folder) + b"/"
    parents: Dict[int, int] = {}
    found: Set[int] = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        # the name, in parentheses, may hold anything: fields are counted from its end
        fields = _read_proc(pid, "stat").rpartition(b")")[2].split()
        if not fields or fields[0] in (b"Z", b"X"):
            continue
        parents[pid] = int(fields[1])
        in_session = session and int(fields[3]) == session
        environment = b"\0" + _read_proc(pid, "environ")
        if in_session or b"\0" + marker in environment:
            found.add(pid)
    while True:
        born = {pid for pid, parent in parents.items() if parent in found} - found
        if not born:
            return found - {os.getpid()}
        found |= born


def holders(devices: str) -> Set[int]:
    """The processes that hold a device file open. `devices`: patterns with `:` between them."""
    files = {os.path.realpath(f) for pattern in devices.split(":") for f in glob.glob(pattern)}
    found: Set[int] = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()) if files else ():
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc/%d/fd" % pid):
                with contextlib.suppress(OSError):
                    if os.readlink("/proc/%d/fd/%s" % (pid, name)) in files:
                        found.add(pid)
    return found - {os.getpid()}


def send(pids: Set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(find: Callable[[], Set[int]], grace: float) -> Set[int]:
    """SIGTERM, up to `grace` seconds, SIGKILL until none is left; returns those that stay, which is seldom."""
    left = find()
    send(left, signal.SIGTERM)
    kill_at = time.monotonic() + grace
    while left and time.monotonic() < kill_at + KILL_PATIENCE:
        if time.monotonic() >= kill_at:
            send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = find()
    return left


def free_devices(grace: float) -> None:
    """Nothing holds the TPU afterwards; only then its lock file is removed. Raises Failure TPU_BUSY."""
    devices = os.environ.get("TPUJOB_DEVICES", "/dev/accel*:/dev/vfio/*")
    left = end_all(lambda: holders(devices), grace)
    if left:
        names = [
            "%d (%s)" % (pid, _read_proc(pid, "comm").decode("utf-8", "replace").strip())
            for pid in left
        ]
        raise Failure("the TPU is still held by process %s" % ", ".join(sorted(names)), "TPU_BUSY")
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(tempfile.gettempdir(), "libtpu_lockfile"))


def kernel_kills() -> int:
    """How many processes the kernel has killed for want of memory, since it was booted."""
    try:
        with open(os.environ.get("TPUJOB_VMSTAT") or "/proc/vmstat", encoding="ascii") as file:
            return int(re.search(r"^oom_kill (\d+)", file.read(), re.M).group(1))  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return 0


# Metadata and storage ------------------------------------------------------------------------------------------------

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Metadata:
    """The server that tells a VM about itself."""

    def __init__(self) -> None:
        host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self._base = "http://%s/computeMetadata/v1/instance/" % host

    def get(self, path: str) -> Optional[str]:
        """None: no answer."""
        headers = {"Metadata-Flavor": "Google"}
        request = urllib.request.Request(self._base + path, headers=headers)  # noqa: S310
        try:
            with DIRECT.open(request, timeout=2) as response:
                return response.read(65536).decode("utf-8", "replace").strip()
        except (OSError, ValueError, http.client.HTTPException):
            return None

    def notice(self) -> Optional[str]:
        """Whether this host is about to be taken away. None: no answer."""
        preempted = self.get("preempted")
        if preempted == "TRUE":
            return "preempted"
        coming = self.get("maintenance-event")
        if preempted is None and coming is None:
            return None
        return "" if coming in ("NONE", "", None) else "maintenance"


class StorageError(Exception):
    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  #: of HTTP; 0: no answer


class Storage:
    """Objects by `gs://` path, over the JSON API."""

    def __init__(self, metadata: Metadata) -> None:
        emulated = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
        if emulated and "://" not in emulated:
            emulated = "http://" + emulated
        self._base = emulated or "https://storage.googleapis.com"
        self._opener = DIRECT if emulated else urllib.request.build_opener()
        self._metadata = None if emulated else metadata
        self._token, self._token_until = "", 0.0
        self._lock = threading.Lock()

    def put(self, path: str, data: bytes, metadata: Optional[Dict[str, str]] = None) -> None:
        """Write whole or not at all. Raises StorageError."""
        bucket, name = _bucket_and_name(path)
        facts = {"name": name, "contentType": "text/plain", "metadata": metadata or {}}
        line = "tpujob-%s" % hashlib.sha256(data).hexdigest()  # nothing holds its own hash
        head = "--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%s\r\n\r\n"
        body = (head % (line, json.dumps(facts), line)).encode() + data
        kind = "multipart/related; boundary=%s" % line
        where = "/upload/storage/v1/b/%s/o?uploadType=multipart" % bucket
        with self._open("POST", where, body + ("\r\n--%s--" % line).encode(), kind):
            pass

    def delete(self, path: str) -> None:
        """Absent is success. Raises StorageError."""
        try:
            with self._open("DELETE", "/storage/v1/b/%s/o/%s" % _quoted(path)):
                pass
        except StorageError as error:
            if error.status != 404:
                raise

    def read(self, path: str, take: Callable[[bytes], object]) -> None:
        """Give the object to `take`, piece by piece. Raises StorageError."""
        with self._open("GET", "/storage/v1/b/%s/o/%s?alt=media" % _quoted(path)) as response:
            try:
                for piece in iter(lambda: response.read(CHUNK), b""):
                    take(piece)
            except (OSError, http.client.HTTPException) as error:
                raise StorageError("reading %s: %s" % (path, error)) from error

    def _open(self, method: str, where: str, body: Optional[bytes] = None, kind: str = "") -> Any:
        headers = {"Content-Type": kind} if kind else {}
        token = self._bearer()
        if token:
            headers["Authorization"] = "Bearer " + token
        request = urllib.request.Request(  # noqa: S310
            self._base + where, body, headers, method=method
        )
        try:
            return self._opener.open(request, timeout=15)
        except urllib.error.HTTPError as error:
            said = ""
            with contextlib.suppress(OSError, http.client.HTTPException), error:
                said = error.read(300).decode("utf-8", "replace")
            if error.code == 401:
                self._token_until = 0.0
            raise StorageError("HTTP %d: %s" % (error.code, said), error.code) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise StorageError("no answer from the storage: %s" % error) from error

    def _bearer(self) -> str:
        """Empty for an emulator, and when the metadata server has none."""
        if self._metadata is None:
            return ""
        with self._lock:
            if time.monotonic() >= self._token_until:
                try:
                    said = json.loads(self._metadata.get("service-accounts/default/token") or "{}")
                    self._token = said["access_token"]
                    self._token_until = time.monotonic() + float(said["expires_in"]) - 60
                except (ValueError, KeyError, TypeError):
                    self._token = ""
            return self._token


def _bucket_and_name(path: str) -> Tuple[str, str]:
    bucket, _, name = path[len("gs://") :].partition("/")
    return bucket, name


def _quoted(path: str) -> Tuple[str, str]:
    bucket, name = _bucket_and_name(path)
    return bucket, urllib.parse.quote(name, safe="")


# Log -----------------------------------------------------------------------------------------------------------------


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
    """The output of an attempt, each line with its time, shipped to numbered segments. Never in the program's way:
    what the storage does not take yet waits on disk, and of more than `limit` bytes head and tail are kept."""

    def __init__(self, storage: Storage, prefix: str, folder: str, limit: int) -> None:
        self._storage, self._prefix, self._folder, self._half = storage, prefix, folder, limit // 2
        os.makedirs(folder, exist_ok=True)
        self._change = threading.Condition()
        self._tail: Deque[bytes] = collections.deque(maxlen=TAIL)
        self._buffer: List[bytes] = []
        self._buffered = self._buffered_lines = self._spilled = 0
        self._last_cut = time.monotonic()
        self._queue: Deque[Chunk] = collections.deque()
        self._flying: Optional[Chunk] = None  #: out of the queue, and not yet in a segment
        self._head_bytes = self._tail_bytes = 0
        self._shipped: Deque[List[int]] = collections.deque()  #: of the tail: number, bytes, lines
        self._doomed: List[int] = []  #: segments to be deleted
        self._dropped = self._told = 0  #: lines; those that the marker speaks of
        self._marker = self._number = 0
        self._newest = b""  #: content of the newest segment while it may grow
        self._time = self._marker_time = 0.0
        self._closing = False
        self._done = threading.Event()
        threading.Thread(target=self._ship, name="ship", daemon=True).start()

    def note(self, text: str) -> None:
        """A line of the agent's own."""
        self._add([("[tpujob] " + text).encode()], b"")

    def tail(self) -> List[bytes]:
        """The newest lines, cut short."""
        with self._change:
            return list(self._tail)

    def follow(self, descriptor: int, tag: bytes = b"") -> threading.Thread:
        """Take what comes out of a pipe until its end, on a thread of its own."""
        thread = threading.Thread(target=self._pump, args=(descriptor, tag), daemon=True)
        thread.start()
        return thread

    def finish(self, patience: float) -> bool:
        """Nothing more comes: ship the rest. Whether that was done in time; it goes on meanwhile if not."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        return self._done.wait(patience)

    def _pump(self, descriptor: int, tag: bytes) -> None:
        rest, drawn = b"", time.monotonic()
        while True:
            data = os.read(descriptor, 64 * 1024)
            if not data:
                break
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
                self._add(lines, tag)
        if rest:
            self._add([rest], tag)
        os.close(descriptor)

    def _add(self, lines: List[bytes], tag: bytes) -> None:
        lines = [_visible(line) if b"\r" in line else line for line in lines]
        if max(map(len, lines)) > LONGEST_LINE:
            lines = [piece for line in lines for piece in _pieces(line)]
        with self._change:
            self._time = max(self._time, time.time())
            stamp = b"%.3f " % self._time + tag
            self._tail.extend([tag + line[:TAIL_WIDTH] for line in lines[-TAIL:]])
            self._buffer.append(stamp + (b"\n" + stamp).join(lines) + b"\n")
            self._buffered += len(self._buffer[-1])
            self._buffered_lines += len(lines)
            if self._buffered >= CHUNK:
                self._cut()

    def _cut(self) -> None:
        """The buffer becomes a chunk in the queue; beyond the limit the oldest of the tail goes."""
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
            if not self._marker and (self._dropped or not chunk.head):
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
        self._insist(lambda: self._storage.put(self._segment(number), content))
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
            dropped, due = self._dropped, self._dropped > self._told and (last or not self._queue)
            if due and not self._marker:
                self._reserve_marker(self._time)
            text = "%.3f [tpujob] %d lines were dropped here\n" % (self._marker_time, dropped)
        for number in doomed:
            self._insist(lambda number=number: self._storage.delete(self._segment(number)))
        if due:
            self._insist(lambda: self._storage.put(self._segment(self._marker), text.encode()))
            self._told = dropped

    def _segment(self, number: int) -> str:
        return "%s%05d" % (self._prefix, number)

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


def evidence(lines: List[bytes]) -> bytes:
    """What shows why a program ended badly, as the body of its report: the telling lines, the last traceback or else
    the last words, in the order of the log; the more telling first where there is no room for all."""
    telling = [i for i, line in enumerate(lines) if TELLING.search(line)]
    starts = [i for i, line in enumerate(lines) if line.startswith(TRACEBACK)]
    last_words = list(range(max(0, len(lines) - LAST_WORDS), len(lines)))
    if starts:
        after = range(starts[-1] + 1, len(lines))
        error = next((i for i in after if lines[i] and not lines[i][:1].isspace()), len(lines) - 1)
        last_words = [*range(starts[-1] + 1, error + 1), starts[-1]]
    wanted = [*last_words[-4:][::-1], *telling[-12:][::-1], *telling[:4], *last_words[-40:][::-1]]
    kept: Dict[int, str] = {}
    room = MAX_EVIDENCE - 64
    for i in wanted:
        text = lines[i].decode("utf-8", "replace")
        size = len(json.dumps(text)) + 1
        if i not in kept and size <= room:
            kept[i], room = text, room - size
    said = {"v": 1, "lines": [kept[i] for i in sorted(kept)]}
    return json.dumps(said, separators=(",", ":")).encode()


# Progress and reports ------------------------------------------------------------------------------------------------


class Progress:
    """How far the program is, from the `events.jsonl` that the contract lets it write."""

    def __init__(self, path: str) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self.facts: Record = {"metrics": {}}

    def look(self) -> bool:
        """Read what is new. Whether a phase, a checkpoint or a resume is among it."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset, self._rest = 0, b""
                file.seek(self._offset)
                data = file.read(4 * 1024 * 1024)
        except OSError:
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            self._rest = b""
        taken = [self._take(line) for line in lines if line]
        return any(taken)

    def _take(self, line: bytes) -> bool:
        try:
            event = json.loads(line)
            kind = event["kind"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        facts = self.facts
        step = _number(event.get("step"))
        if "steps" in event:
            facts["steps"] = _number(event["steps"])
        if kind == "step":
            facts.update(step=step, loss=_number(event.get("loss")))
        elif kind == "checkpoint":
            facts["checkpoint"] = step
        elif kind == "resume":
            facts["resumed_from"] = step
        elif kind == "phase":
            facts["program_phase"] = str(event.get("name"))[:60]
        elif kind == "metric":
            name, metrics = str(event.get("name"))[:60], facts["metrics"]
            if name in metrics or len(metrics) < 32:
                facts["metrics"] = dict(metrics, **{name: _number(event.get("value"))})
        return kind in ("phase", "checkpoint", "resume", "verdict")


def _number(value: Any) -> Any:
    """A number of a size that fits a report, or None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


class Reporter:
    """Keeps the host's report in the bucket up to date: every so often, and soon after each change."""

    def __init__(self, storage: Storage, path: str, every: float, base: Record) -> None:
        self._storage, self._path, self._every = storage, path, max(1.0, every)
        self._record = dict(base)
        self._change = threading.Condition()
        self._urgent, self._last, self._hurry = True, False, False
        self._body = b""
        self._kept: Record = {}  #: what the newest object says
        self._written = threading.Event()
        threading.Thread(target=self._write, name="report", daemon=True).start()

    def update(self, facts: Record, urgent: bool = False) -> None:
        with self._change:
            urgent = urgent or any(
                facts[k] != self._record.get(k) for k in ("phase", "notice") if k in facts
            )
            self._record.update(facts)
            if urgent:
                self._urgent = True
                self._change.notify_all()

    def hurry(self, facts: Record, body: bytes) -> None:
        """A report at once, however young the one before is: this host may be gone in a moment."""
        with self._change:
            self._record.update(facts)
            self._body, self._urgent, self._hurry = body, True, True
            self._change.notify_all()

    def finish(self, facts: Record, body: bytes, patience: float) -> bool:
        """The last report; whether it was written in time."""
        with self._change:
            self._record.update(facts)
            self._body = body
            self._last = True
            self._change.notify_all()
        return self._written.wait(patience)

    def _write(self) -> None:
        delay = 1.0
        while True:
            with self._change:
                self._change.wait_for(lambda: self._urgent or self._last, timeout=self._every)
                last, self._urgent = self._last, False
                text, body, record = self._text(), self._body, dict(self._record)
            try:
                if not last or record != self._kept:  # the same again would only look younger
                    self._storage.put(self._path, body, {"report": text})
                self._kept, delay = record, 1.0
                if last:
                    return self._written.set()
            except StorageError:
                delay = min(delay * 2, 10)
                with self._change:
                    self._urgent = True
            with self._change:  # one object takes one write a second
                self._change.wait_for(lambda: self._hurry, timeout=delay)
                self._hurry = False

    def _text(self) -> str:
        record = dict(self._record, at=round(time.time(), 3))
        text = json.dumps(record, separators=(",", ":"))
        if len(text) > MAX_METADATA:
            text = json.dumps(dict(record, metrics={}), separators=(",", ":"))
        return text


# Bundles -------------------------------------------------------------------------------------------------------------


def fetch(storage: Storage, path: str) -> str:
    """The folder of a bundle, fetched and unpacked once. Raises Failure."""
    match = re.search(r"/([0-9a-f]{64})\.tar\.gz$", path)
    if not match:
        raise Failure("%s does not have its hash in its name" % path)
    folder = os.path.join(ROOT, "bundles", match.group(1))
    if os.path.isdir(folder):
        return folder
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    scratch = tempfile.mkdtemp(dir=os.path.dirname(folder))
    try:
        archive, files = os.path.join(scratch, "archive"), os.path.join(scratch, "files")
        _download(storage, path, archive, match.group(1))
        unpack(archive, files)
        os.rename(files, folder)
    except OSError as error:
        raise Failure("cannot unpack %s: %s" % (path, error)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _download(storage: Storage, path: str, archive: str, wanted: str) -> None:
    until, delay, wrong = time.monotonic() + FETCH_PATIENCE, 0.5, 0
    while True:
        digest = hashlib.sha256()
        try:
            with open(archive, "wb") as file:
                storage.read(path, lambda data: (digest.update(data), file.write(data)))  # noqa: B023
            if digest.hexdigest() == wanted:
                return
            wrong += 1
            problem, final = "its content has another hash", wrong == 3
        except StorageError as error:
            problem, final = str(error), error.status in (400, 401, 403, 404)
            if final:
                cause = PROBLEM_MEANS.get(error.status, "SETUP")
                raise Failure("cannot fetch %s: %s" % (path, problem), cause) from error
        if final or time.monotonic() > until:
            raise Failure("cannot fetch %s: %s" % (path, problem))
        time.sleep(delay)
        delay = min(delay * 2, 10)


def unpack(archive: str, folder: str) -> None:
    """Files, folders and links that stay inside, nothing else. Raises Failure."""
    os.makedirs(folder)
    room, count = MAX_UNPACKED, 0
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                room, count = room - member.size, count + 1
                if room < 0 or count > MAX_FILES:
                    raise Failure("the bundle is too large")
                _unpack_one(tar, member, folder)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise Failure("the bundle is no good archive: %s" % error) from error
    inside = os.path.realpath(folder) + os.sep
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(root, name)
            if os.path.islink(path) and not (os.path.realpath(path) + os.sep).startswith(inside):
                raise Failure("the bundle holds a link that leaves it: %r" % name)


def _unpack_one(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    parts = member.name.split("/")
    above = [os.path.join(folder, *parts[:i]) for i in range(1, len(parts))]
    if member.name.startswith("/") or ".." in parts or any(map(os.path.islink, above)):
        raise Failure("the bundle holds a file that leaves it: %r" % member.name)
    path = os.path.join(folder, member.name)
    if member.isdir():
        return os.makedirs(path, exist_ok=True)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if member.issym() and not member.linkname.startswith("/"):
        return os.symlink(member.linkname, path)
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        raise Failure("the bundle holds what is neither file nor folder: %r" % member.name)
    with open(path, "xb") as file:
        shutil.copyfileobj(content, file)
    os.chmod(path, 0o755 if member.mode & 0o100 else 0o644)
    return None


# The daemon ----------------------------------------------------------------------------------------------------------


class Wake:
    """Something happened: a signal, the end of a child."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> None:
        if select.select([self._reader], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                os.read(self._reader, 4096)


class Daemon:
    """One attempt on this host, from its plan to its last report."""

    def __init__(self, plan: Record, folder: str) -> None:
        self.plan, self.folder = plan, folder
        self.out, self.work = os.path.join(folder, "out"), os.path.join(folder, "work")
        self.state: Record = {"job": plan["job"], "attempt": plan["attempt"], "pid": os.getpid()}
        self.state.update(phase="fetching", exit_code=None, error="", cause=None, notice="")
        self.state.update(program=False, stopped=False)
        self.grace: Optional[float] = None  #: set when `stop` has been called
        self.warned = False  #: SIGTERM came, or a notice
        self.host_lock: Optional[int] = None
        self._noticed = ""  #: by the metadata thread
        self.wake = Wake()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def save(self) -> None:
        write_json(os.path.join(self.folder, "state.json"), self.state)

    def run(self) -> None:
        """Runs to the end of the attempt, whatever happens."""
        attempt, host, workdir = (self.plan[k] for k in ("attempt", "host", "workdir"))
        self.metadata = Metadata()
        self.storage = Storage(self.metadata)
        where = "%s/attempts/%d" % (workdir, attempt)
        self.shipped_to = "%s/host-%d" % (where, host)
        spool = os.path.join(self.folder, "spool")
        self.log = Log(self.storage, self.shipped_to + "/log-", spool, self.plan["log_bytes"])
        base = dict({"v": 1, "host": host}, **{key: self.state[key] for key in SAID})
        report = "%s/reports/host-%d" % (where, host)
        self.reporter = Reporter(self.storage, report, self.plan["report_every"], base)
        self.progress = Progress(os.path.join(self.out, "events.jsonl"))
        threading.Thread(target=self._watch_metadata, name="metadata", daemon=True).start()
        kills = kernel_kills()
        try:
            code: Optional[int] = self._live()
        except Stopped:
            code = -signal.SIGTERM
        except Failure as failure:
            code = None
            self.state.update(error=str(failure)[:500], cause=failure.cause)
        except Exception as error:  # a mistake here must not leave a program without its keeper
            traceback.print_exc()
            end_all(lambda: family(self.folder), self.plan["grace"])
            code = None
            self.state.update(error="the agent failed: %r" % error, cause="CRASH")
        killed = kernel_kills() - kills
        if killed > 0 and code not in (None, 0, INTERRUPTED) and self.grace is None:
            self.log.note("the kernel killed for want of memory, processes: %d" % killed)
            if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
                self.state.update(error="killed for want of memory", cause="OOM_HOST")
        self._finish(code)

    # Steps

    def _live(self) -> int:
        """Every step up to the program's end; returns its exit code."""
        os.makedirs(self.out, exist_ok=True)
        self._aside(self._take_over, whole=True)
        bundles = self._aside(lambda: [fetch(self.storage, b) for b in self.plan["bundles"]])
        self._prepare(bundles)
        self._phase("clearing")
        self._aside(lambda: free_devices(self.plan["grace"]), whole=True)
        self._phase("running")
        self.state["program"] = True
        self.save()
        return self._run(self.plan["argv"], b"")

    def _take_over(self) -> None:
        """This daemon alone may own processes on this host afterwards: every other attempt's have ended."""
        stop_others(self.plan["grace"], besides=self.folder)
        self.host_lock = take_lock(os.path.join(ROOT, "host.lock"), KILL_PATIENCE)
        if self.host_lock is None:
            raise Failure("another agent does not let go of this host")
        if end_all(lambda: family(ATTEMPTS), self.plan["grace"]):
            raise Failure("processes of an earlier attempt do not end")
        for state in other_states(self.folder):
            for name in ("work", "spool"):
                path = os.path.join(state["folder"], name)
                if not os.path.islink(path) and state["phase"] == "exited" and not state["live"]:
                    shutil.rmtree(path, ignore_errors=True)

    def _prepare(self, bundles: List[str]) -> None:
        """The program's folder, with the bundles in it and set-up done. What a set-up made is kept for later attempts
        at the same place, as it may hold absolute paths; without one, every attempt begins afresh."""
        setup, done = self.plan.get("setup"), ""
        if setup:
            named = json.dumps([self.plan["job"], setup, self.plan["bundles"]])
            kept = os.path.join(ROOT, "work", hashlib.sha256(named.encode()).hexdigest()[:16])
            done = kept + ".done"
            if not os.path.lexists(self.work):
                os.symlink(kept, self.work)
            if os.path.exists(done) and os.path.isdir(kept):
                self.log.note("set-up was done on this host before")
                return
            shutil.rmtree(kept, ignore_errors=True)
            os.makedirs(kept)
        else:
            shutil.rmtree(self.work, ignore_errors=True)
            os.makedirs(self.work)
        for bundle in bundles:
            self._aside(
                lambda b=bundle: shutil.copytree(b, self.work, symlinks=True, dirs_exist_ok=True)
            )
        if setup:
            self._phase("setup")
            code = self._run(["bash", "-c", setup], b"[setup] ")
            if self._told():
                raise Stopped
            if code != 0:
                raise Failure("set-up ended with exit code %d; its log says why" % code)
            write_json(done, {"attempt": self.plan["attempt"]})

    def _aside(self, work: Callable[[], Any], whole: bool = False) -> Any:
        """What `work` returns. It runs beside, so that a word to stop is heard; it is abandoned then, unless it must
        be done `whole`: what signals processes must not go on after this attempt."""
        outcome: List[Any] = []

        def do() -> None:
            try:
                outcome[:] = [work(), None]
            except Exception as error:
                outcome[:] = [None, error]

        thread = threading.Thread(target=do, daemon=True)
        thread.start()
        while thread.is_alive():
            self.wake.wait(0.05)
            self._listen()
            if self._told() and not whole:
                raise Stopped
        if outcome[1] is not None:
            raise outcome[1]
        if self._told():
            raise Stopped
        return outcome[0]

    def _told(self) -> bool:
        return self.grace is not None or self.warned

    # The program

    def _run(self, argv: List[str], tag: bytes) -> int:
        """Start a command, follow it to its end, end what is left of it. Exit codes of a shell for one that cannot
        be started."""
        environment = self._environment()
        search = environment.get("PATH")
        if argv[0] == "bash" and not shutil.which("bash", path=search):
            argv = ["sh", *argv[1:]]
        reader, writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, 1031, CHUNK)  # F_SETPIPE_SZ: a burst does not wait for us
        try:
            child = subprocess.Popen(
                argv,
                cwd=self.work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(reader)
            why = error.strerror if isinstance(error, OSError) else error
            self.log.note("cannot start %s: %s" % (argv[0], why))
            return 127 if isinstance(error, FileNotFoundError) else 126
        finally:
            os.close(writer)
        pump = self.log.follow(reader, tag)
        code = self._attend(child)
        end_all(lambda: family(self.folder, child.pid), 2)
        pump.join(5)
        return code

    def _environment(self) -> Dict[str, str]:
        context = {k: os.path.expanduser(str(v)) for k, v in self.plan["context"].items()}
        context["out"] = self.out
        if context.get("cache"):
            os.makedirs(context["cache"], exist_ok=True)
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        environment.update(self.plan["env"])
        environment.update({"TPUJOB_" + k.upper(): v for k, v in context.items()})
        path = (self.work, environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
        return environment

    def _attend(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the child, and pass on what it must hear."""
        told, kill_at = False, 0.0
        while child.poll() is None:
            self._listen()
            if self.grace is not None and not kill_at:
                kill_at = time.monotonic() + self.grace
                self._phase("stopping")
                send(family(self.folder, child.pid), signal.SIGTERM)
            elif self.warned and not told and not kill_at:
                told = True
                self.log.note("passing SIGTERM on: %s" % (self._noticed or "told by the host"))
                send(family(self.folder, child.pid), signal.SIGTERM)
            if kill_at and time.monotonic() >= kill_at:
                send(family(self.folder, child.pid), signal.SIGKILL)
            self.wake.wait(0.1 if kill_at else 1.0)
        self._listen()
        return child.returncode

    # What comes from outside

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self.warned = True

    def _listen(self) -> None:
        """Take in what was said to this daemon, and by the program."""
        if self.grace is None:
            asked = read_json(os.path.join(self.folder, "stop.json"))
            if asked:
                self.grace, self.state["stopped"] = float(asked["grace"]), True
        if self._noticed and self.state["notice"] != self._noticed:
            self.state["notice"], self.warned = self._noticed, True
            self.reporter.update({"notice": self._noticed})
        urgent = self.progress.look()
        self.reporter.update(self.progress.facts, urgent)

    def _watch_metadata(self) -> None:
        """Once a second while the server answers, seldom while it does not."""
        delay = 1.0
        while self._noticed != "preempted":
            notice = self.metadata.notice()
            self._noticed = notice or self._noticed
            delay = min(delay * 2, 60) if notice is None else 1.0
            time.sleep(delay)

    def _phase(self, phase: str, said: bool = True) -> None:
        self.state["phase"] = phase
        self.save()
        if said:
            self.reporter.update({"phase": phase})

    # The end

    def _finish(self, code: Optional[int]) -> None:
        self.state["exit_code"] = code
        self._phase("exited", said=False)
        if self.host_lock is not None:
            os.close(self.host_lock)  # the next attempt need not wait for the rest
        if code != 0 and not self._noticed:
            self._noticed = self.metadata.notice() or ""
        self._listen()
        self.save()
        if self.state["error"]:
            self.log.note(self.state["error"])
        last_words = b"" if code in (0, INTERRUPTED) else evidence(self.log.tail())
        said = {key: self.state[key] for key in SAID}
        if self.state["notice"]:
            self.reporter.hurry(said, last_words)
        flushed = self.log.finish(FLUSH_DOOMED if self.state["notice"] else FLUSH)
        self.reporter.finish(said, last_words, FINAL_PATIENCE)
        for name in ("events.jsonl", "verdict.json"):
            self._ship_file(name)
        if not flushed:
            self.log.finish(FINAL_PATIENCE)

    def _ship_file(self, name: str) -> None:
        path = os.path.join(self.out, name)
        with contextlib.suppress(OSError, StorageError), open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - MAX_EVENTS))
            self.storage.put("%s/%s" % (self.shipped_to, name), file.read(MAX_EVENTS))


# Attempts on this host -----------------------------------------------------------------------------------------------


def other_states(besides: str = "") -> List[Record]:
    """The record of every attempt that this host knows of, with `folder`, `phase` and whether its daemon is `live`."""
    found: List[Record] = []
    for folder in sorted(glob.glob(os.path.join(glob.escape(ATTEMPTS), "*"))):
        state = read_json(os.path.join(folder, "state.json"))
        if state and folder != besides:
            live = is_locked(os.path.join(folder, "lock"))
            found.append(dict(state, folder=folder, live=live))
    return found


def stop_others(grace: float, besides: str = "") -> List[Record]:
    """Ask every other daemon to stop its program, and see to it. Returns the records of those that were asked."""
    asked = [s for s in other_states(besides) if s["live"] and s["phase"] != "exited"]
    for state in asked:
        write_json(os.path.join(state["folder"], "stop.json"), {"grace": grace})
        send({state["pid"]}, signal.SIGUSR1)
    until = time.monotonic() + grace + KILL_PATIENCE
    for state in asked:
        while not _over(state["folder"]) and time.monotonic() < until:
            time.sleep(0.05)
        if not _over(state["folder"]):
            send({state["pid"]}, signal.SIGKILL)
    return asked


def _over(folder: str) -> bool:
    ended = read_json(os.path.join(folder, "state.json")).get("phase") == "exited"
    return ended or not is_locked(os.path.join(folder, "lock"))


# Commands ------------------------------------------------------------------------------------------------------------


def start(path: str) -> Record:
    """Make this host look like the plan's attempt. Answers once its daemon is there; safe to repeat: an attempt whose
    program was once started is never started again."""
    plan = read_plan(path)
    job, attempt = plan["job"], plan["attempt"]
    folder = os.path.join(ATTEMPTS, "%s-%d" % (job, attempt))
    with command_lock():
        newest = max((s["attempt"] for s in other_states() if s["job"] == job), default=0)
        if newest > attempt:
            raise Failure("attempt %d is stale: attempt %d was started here" % (attempt, newest))
        state = read_json(os.path.join(folder, "state.json"))
        if state and not _never_began(state, folder):
            return {"ok": True, "state": "already", "attempt": attempt, "pid": state["pid"]}
        pid = spawn(plan, folder)
    return {"ok": True, "state": "started", "attempt": attempt, "pid": pid}


def _never_began(state: Record, folder: str) -> bool:
    """Whether the attempt's start may be repeated: it was undone, or its daemon died, before the program began.
    Afterwards no daemon of it is left."""
    if state["program"] or (state["phase"] == "exited" and not state["stopped"]):
        return False
    if not _over(folder):
        return False
    send({state["pid"]} if is_locked(os.path.join(folder, "lock")) else set(), signal.SIGKILL)
    return True


def read_plan(path: str) -> Record:
    """The plan in a file, checked as far as a wrong one could do harm. Raises Failure."""
    plan = read_json(path)
    kinds = {
        "job": str, "attempt": int, "host": int, "workdir": str, "bundles": list, "argv": list,
        "env": dict, "context": dict, "grace": (int, float), "report_every": (int, float),
        "log_bytes": int,
    }  # fmt: skip
    wrong = [key for key, kind in kinds.items() if not isinstance(plan.get(key), kind)]
    if plan.get("v") != 1 or wrong:
        raise Failure("%s is no plan that this agent understands: %s" % (path, ", ".join(wrong)))
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", plan["job"]) or not plan["argv"]:
        raise Failure("%s names no job or no program" % path)
    if not plan["workdir"].startswith("gs://"):
        raise Failure("%s has no workdir in a bucket" % path)
    return plan


def spawn(plan: Record, folder: str) -> int:
    """Start the attempt's daemon; returns its pid once it has its lock and its record."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        code = 1
        try:
            os.setsid()
            if os.fork() == 0:
                be_daemon(plan, folder, writer)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    os.wait()
    answer = b""
    while select.select([reader], [], [], 30)[0]:
        data = os.read(reader, 4096)
        answer += data
        if not data or answer.endswith(b"\n"):
            break
    os.close(reader)
    if not answer.strip().isdigit():
        said = answer.decode("utf-8", "replace").strip() or "it did not come up"
        raise Failure("the agent's daemon: %s" % said)
    return int(answer)


def be_daemon(plan: Record, folder: str, answer: int) -> None:
    """What the detached process does, for all its life."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "stop.json"))
        _detach(os.path.join(folder, "agent.log"), answer)
        lock = take_lock(os.path.join(folder, "lock"), 10)
        if lock is None:
            raise OSError("%s is in use" % folder)
        daemon = Daemon(plan, folder)
        daemon.save()
        os.write(answer, b"%d\n" % os.getpid())
    except OSError as error:
        os.write(answer, ("%s\n" % error).encode())
        return
    os.close(answer)
    daemon.run()


def _detach(log: str, keep: int) -> None:
    """Nothing of the session that started it is left open."""
    os.chdir("/")
    null, file = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    )
    for descriptor, number in ((null, 0), (file, 1), (file, 2)):
        os.dup2(descriptor, number)
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def stop(grace: float) -> Record:
    """Nothing of tpujob runs on this host afterwards, and its devices are free. Safe to repeat."""
    with command_lock():  # no start is under way
        pass
    asked = stop_others(grace)
    if end_all(lambda: family(ATTEMPTS), 0 if asked else grace):
        raise Failure("processes of an attempt do not end", "TPU_BUSY")
    free_devices(grace)
    ended = [read_json(os.path.join(s["folder"], "state.json")) for s in asked]
    kept = ("job", "attempt", "exit_code")
    return {"ok": True, "state": "stopped", "stopped": [{k: s.get(k) for k in kept} for s in ended]}


def status() -> Record:
    return {"ok": True, "attempts": other_states()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs one program as its plan says.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start").add_argument("plan")
    commands.add_parser("stop").add_argument("--grace", type=float, default=30.0)
    commands.add_parser("status")
    given = parser.parse_args()
    try:
        if given.command == "start":
            answer = start(given.plan)
        else:
            answer = stop(given.grace) if given.command == "stop" else status()
    except Failure as failure:
        answer = {"ok": False, "error": str(failure), "cause": failure.cause}
    except OSError as error:
        answer = {"ok": False, "error": "the host's disk: %s" % error, "cause": "SETUP"}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
