"""Differences between two jobs: their specs by key, their ends, and the files of their bundles.

Bundles are read as streams: once for the hashes of their files, and a second time if a changed file is text. Memory is
bounded; time is proportional to their size.
"""

import difflib
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal, cast

from tpujob.api import ChangeView, DiffSide, DiffView, FileChangeView
from tpujob.domain.model import Job, Json, Progress
from tpujob.domain.money.ledger import usd
from tpujob.domain.progress import job_progress
from tpujob.domain.spec import dump
from tpujob.errors import NotFound
from tpujob.ports import Blobs
from tpujob.protocol.bundle import ArchiveMember, BadBundle, members
from tpujob.protocol.limits import secret_variables
from tpujob.service.views import SET, code_view

FETCH = 60.0  #: seconds to fetch one piece of a bundle
PIECE = 8 * 1024**2  #: bytes
#: bytes of all archives of a job; no bundle of ours has more than a quarter
UNPACKED_LIMIT = 512 * 1024**2
FILE_LIMIT = 512 * 1024  #: bytes; a larger file is only named
#: bytes of the texts of one job that are held at once; others are only named
TEXTS_LIMIT = 16 * 1024**2
TEXT_LIMIT = 256 * 1024  #: characters of all diffs together, so that the answer stays small
#: lines of a changed file on both sides, and of all of them: others are shown as wholly replaced. At its worst a file
#: of so many lines takes some tenths of a second.
FILE_LINES, ALL_LINES = 10_000, 200_000

Kind = Literal["added", "removed", "changed", "mode"]
#: the live progress of both jobs
Live = tuple[Progress | None, Progress | None]
#: begins to read an archive, as often as it is asked to
Opens = Callable[[], IO[bytes]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a link of an archive."""

    sha256: str  #: of its content
    size: int
    mode: str  #: `file`, `program`, or `link`
    place: int = field(compare=False)  #: which archive has it
    link: str = ""  #: where a link leads


def specs(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[ChangeView]:
    """Return what differs between two specs by dotted key, in the order of the first; lists are compared whole. Values
    of the program's variables with names such as `HF_TOKEN`, which may be secrets, are not shown."""
    return [_shown(change) for change in _changes(flat(a), flat(b))]


def _shown(change: ChangeView) -> ChangeView:
    key = change["key"]
    if not key.startswith("run.env.") or not secret_variables({key: ""}):
        return change
    old, new = (None if value is None else SET for value in (change["a"], change["b"]))
    return ChangeView(key=key, a=old, b="changed" if old and new else new)


def outcomes(a: Job, b: Job, now: float, live: Live = (None, None)) -> list[ChangeView]:
    """Compare how far the jobs came, and what they cost."""
    return _changes(_outcome(a, now, live[0]), _outcome(b, now, live[1]))


def files(
    a: Sequence[Opens], b: Sequence[Opens], room: int = UNPACKED_LIMIT
) -> tuple[list[FileChangeView], bool]:
    """Compare two stacks of archives, each archive laid over the ones before it as on a host; return the differences,
    and whether a diff was left out for want of room. Raises BadBundle when one is not an archive, or a stack unpacks to
    more than `room` bytes."""
    before, after = _entries(a, room), _entries(b, room)
    names = sorted({*before, *after})
    changed = [name for name in names if before.get(name) != after.get(name)]
    old, new = _Texts(a, before, changed), _Texts(b, after, changed)
    shown = _Shown()
    differing = [
        FileChangeView(
            path=name,
            change=_kind(before.get(name), after.get(name)),
            diff=shown.diff(name, old.lines(name), new.lines(name)),
        )
        for name in changed
    ]
    return differing, shown.cut or old.cut or new.cut


def flat(value: Json, key: str = "") -> dict[str, Json]:
    """Return the values by dotted key; lists stay whole."""
    if not isinstance(value, Mapping):
        return {key: value}
    inner = cast("Mapping[str, Any]", value)
    if not inner and key:
        return {key: {}}
    return {
        k: v
        for name, below in inner.items()
        for k, v in flat(below, f"{key}.{name}" if key else name).items()
    }


def _outcome(job: Job, now: float, live: Progress | None) -> dict[str, Json]:
    has = job_progress(job, live)
    spent = usd(job.slices, now)
    return {
        "state": job.state.value,
        "outcome": job.outcome.value if job.outcome else "not ended yet",
        "cause": job.cause and job.cause.value,
        "attempts": len(job.attempts),
        "step": has.step,
        "loss": (has.nonfinite and has.nonfinite.loss)
        or (None if has.loss is None else float(f"{has.loss:.6g}")),
        "checkpoint": has.checkpoint,
        "usd_spent": None if spent is None else round(spent, 2),
        "seconds": round((job.finished_at or now) - job.created_at),
        **{f"spent.{name}": used for name, used in job.retries_used.items()},
    }


def _changes(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[ChangeView]:
    keys = dict.fromkeys([*a, *b])
    return [
        ChangeView(key=key, a=a.get(key), b=b.get(key)) for key in keys if a.get(key) != b.get(key)
    ]


# Archives ------------------------------------------------------------------------------------------------------------


def _entries(archives: Sequence[Opens], room: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for place, open_archive in enumerate(archives):
        with open_archive() as packed:
            for member in members(packed):
                room -= member.info.size
                if room < 0:
                    raise BadBundle("the bundles are too large to compare")
                entries[member.info.name] = _entry(member, place)
    return entries


def _entry(member: ArchiveMember, place: int) -> Entry:
    info = member.info
    if not info.isreg():
        return Entry("", 0, "link", place, info.linkname)
    digest = hashlib.sha256()
    for piece in member.content:
        digest.update(piece)
    mode = "program" if info.mode & 0o100 else "file"
    return Entry(digest.hexdigest(), info.size, mode, place)


def _kind(a: Entry | None, b: Entry | None) -> Kind:
    if a is None:
        return "added"
    if b is None:
        return "removed"
    return "mode" if (a.sha256, a.link) == (b.sha256, b.link) else "changed"


class _Texts:
    """The lines of those files of a stack of archives that may be shown."""

    def __init__(
        self, archives: Sequence[Opens], entries: Mapping[str, Entry], changed: Sequence[str]
    ) -> None:
        self._entries, self._texts = entries, dict[str, bytes]()
        self.cut = False  #: a text was left out
        numbers: dict[int, set[str]] = {}
        room = TEXTS_LIMIT
        for name in changed:
            entry = entries.get(name)
            if entry is None or entry.mode == "link" or entry.size > FILE_LIMIT:
                continue
            room -= entry.size
            if room < 0:
                self.cut = True
                break
            numbers.setdefault(entry.place, set()).add(name)
        for place, names in numbers.items():
            self._texts |= _contents(archives[place], names)

    def lines(self, name: str) -> list[str] | None:
        """Return the lines of a file or a link; None: it is not text, or too large to show."""
        entry = self._entries.get(name)
        if entry is None:
            return []
        if entry.mode == "link":
            return [f"link to {entry.link}\n"]
        data = self._texts.get(name)
        try:
            return None if data is None or b"\0" in data else data.decode().splitlines(True)
        except UnicodeDecodeError:
            return None


def _contents(open_archive: Opens, names: set[str]) -> Iterator[tuple[str, bytes]]:
    with open_archive() as packed:
        for member in members(packed):
            if member.info.name in names:
                yield member.info.name, b"".join(member.content)


class _Shown:
    """Diffs, as long as there is room for them."""

    def __init__(self) -> None:
        self._room, self._lines_left = TEXT_LIMIT, ALL_LINES
        self.cut = False  #: one was left out

    def diff(self, name: str, a: list[str] | None, b: list[str] | None) -> str:
        if a is None or b is None:
            return ""
        text = "".join(map(_ended, self._lines(name, a, b))) if self._room > 0 else ""
        if len(text) >= self._room:
            text, self.cut = "", True
        self._room -= len(text)
        return text

    def _lines(self, name: str, a: list[str], b: list[str]) -> Iterator[str]:
        lines = len(a) + len(b)
        if lines <= min(FILE_LINES, self._lines_left):
            self._lines_left -= lines
            yield from difflib.unified_diff(a, b, f"a/{name}", f"b/{name}")
            return
        yield from (f"--- a/{name}\n", f"+++ b/{name}\n", f"@@ -1,{len(a)} +1,{len(b)} @@\n")
        yield from (f"-{line}" for line in a)
        yield from (f"+{line}" for line in b)


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n"


# Fetched -------------------------------------------------------------------------------------------------------------


def compare(a: Job, b: Job, blobs: Blobs, now: float, *, live: Live = (None, None)) -> DiffView:
    """Return what differs from `a` to `b`, for a caller who sees all of both. `live`: the progress of each, as
    `job_progress` takes it. `files_unknown` says why files could not be compared. Raises Transient, Refused when the
    bucket does not answer."""
    changed, unknown, cut = _fetched(a, b, blobs)
    return DiffView(
        a=_side(a),
        b=_side(b),
        spec=specs(dump(a.spec), dump(b.spec)),
        outcome=outcomes(a, b, now, live),
        files=changed,
        files_unknown=unknown,
        cut=cut,
    )


def _fetched(a: Job, b: Job, blobs: Blobs) -> tuple[list[FileChangeView], str, bool]:
    # a bundle is named by its content, and lies in the bucket of its job's region
    if [_name(path) for path in a.bundles] == [_name(path) for path in b.bundles]:
        return [], "", False
    try:
        old, new = (
            [lambda path=path: io.BufferedReader(_Fetched(blobs, path)) for path in job.bundles]
            for job in (a, b)
        )
        differences, cut = files(old, new)
    except NotFound as error:
        return [], f"a bundle is gone: {error.message}", False
    except BadBundle as error:
        return [], str(error), False
    return differences, "", cut


class _Fetched(io.RawIOBase):
    """A bundle in the bucket, fetched as it is read."""

    def __init__(self, blobs: Blobs, path: str) -> None:
        self._blobs, self._path = blobs, path
        self._at = 0  #: fetched so far
        self._piece = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not self._piece and not self._ended:
            end = self._at + PIECE
            self._piece = memoryview(
                self._blobs.get(self._path, start=self._at, end=end, timeout=FETCH)
            )
            self._at += len(self._piece)
            self._ended = self._at < end
        size = min(len(into), len(self._piece))
        into[:size], self._piece = self._piece[:size], self._piece[size:]
        return size


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _side(job: Job) -> DiffSide:
    return DiffSide(
        id=job.id,
        name=job.name,
        state=job.state,
        code=code_view(job.code),
        bundles=list(job.bundles),
    )
