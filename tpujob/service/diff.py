"""What differs between two jobs: their specs by key, how they ended, and the files of their bundles.

Only `compare` fetches anything; the rest is pure. One file at a time is held as text.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from tpujob.api import ChangeView, DiffSide, DiffView, FileChangeView
from tpujob.domain.model import Job, Json
from tpujob.domain.money import usd_of_job
from tpujob.domain.spec import dump
from tpujob.errors import NotFound
from tpujob.ports import Blobs
from tpujob.service.views import code_view

#: seconds to fetch one bundle, of at most 100 MiB
FETCH = 60.0
UNPACKED_LIMIT = 512 * 1024**2  #: bytes of all archives; no bundle of ours has more than a fifth
FILE_LIMIT = 512 * 1024  #: bytes; a larger file is only named
TEXT_LIMIT = 256 * 1024  #: characters of all diffs together, so that the answer stays small

Kind = Literal["added", "removed", "changed", "mode"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a link of an archive."""

    sha256: str  #: of its content
    size: int
    mode: str  #: `file`, `program`, or `link`
    place: int  #: which archive has it
    link: str = ""  #: where a link leads


def specs(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[ChangeView]:
    """By dotted key, in the order of the first; lists are compared whole."""
    return _changes(_flat(a), _flat(b))


def outcomes(a: Job, b: Job, now: float) -> list[ChangeView]:
    """How far they came, and what it cost."""
    return _changes(_outcome(a, now), _outcome(b, now))


def files(a: Sequence[bytes], b: Sequence[bytes]) -> tuple[list[FileChangeView], bool]:
    """What differs between two piles of archives, each laid over the ones before it as on a host; and whether a diff
    was left out for want of room. Raises ValueError when one of them is no archive."""
    before, after = _entries(a), _entries(b)
    changed = [
        name for name in sorted({*before, *after}) if _differ(before.get(name), after.get(name))
    ]
    room, found, cut = TEXT_LIMIT, list[FileChangeView](), False
    for name in changed:
        old, new = before.get(name), after.get(name)
        text = _diff(name, _text(a, name, old), _text(b, name, new)) or ""
        if len(text) > room:
            text, cut = "", True
        room -= len(text)
        found.append(FileChangeView(path=name, change=_kind(old, new), diff=text))
    return found, cut


def _flat(value: Json, key: str = "") -> dict[str, Json]:
    if not isinstance(value, Mapping):
        return {key: value}
    inner = cast("Mapping[str, Any]", value)
    if not inner and key:
        return {key: {}}
    return {
        k: v
        for name, below in inner.items()
        for k, v in _flat(below, f"{key}.{name}" if key else name).items()
    }


def _outcome(job: Job, now: float) -> dict[str, Json]:
    done = job.attempt.progress if job.attempt else None
    usd = usd_of_job(job, now)
    return {
        "state": job.state.value,
        "outcome": job.outcome and job.outcome.value,
        "cause": job.cause and job.cause.value,
        "attempts": len(job.attempts),
        "step": done and done.step,
        "loss": done and done.loss,
        "checkpoint": done and done.checkpoint,
        "usd_spent": None if usd is None else round(usd, 2),
        "seconds": round((job.finished_at or now) - job.created_at),
        **{f"spent.{name}": used for name, used in job.spent.items()},
    }


def _changes(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[ChangeView]:
    keys = dict.fromkeys([*a, *b])
    return [
        ChangeView(key=key, a=a.get(key), b=b.get(key)) for key in keys if a.get(key) != b.get(key)
    ]


# Archives ------------------------------------------------------------------------------------------------------------


def _entries(archives: Iterable[bytes]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    room = UNPACKED_LIMIT
    for place, archive in enumerate(archives):
        try:
            with _opened(archive) as tar:
                for member in tar:
                    room -= member.size
                    if room < 0:
                        raise ValueError("the bundles are too large to compare")
                    found[member.name] = _entry(tar, member, place)
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise ValueError(f"a bundle is no archive: {error}") from error
    return found


def _opened(archive: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz")


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo, place: int) -> Entry:
    if not member.isreg():
        return Entry("", 0, "link", place, member.linkname)
    digest, content = hashlib.sha256(), tar.extractfile(member)
    while content and (part := content.read(1 << 20)):
        digest.update(part)
    mode = "program" if member.mode & 0o100 else "file"
    return Entry(digest.hexdigest(), member.size, mode, place)


def _differ(a: Entry | None, b: Entry | None) -> bool:
    if a is None or b is None:
        return True
    return (a.sha256, a.mode, a.link) != (b.sha256, b.mode, b.link)


def _kind(a: Entry | None, b: Entry | None) -> Kind:
    if a is None:
        return "added"
    if b is None:
        return "removed"
    return "mode" if (a.sha256, a.link) == (b.sha256, b.link) else "changed"


def _text(archives: Sequence[bytes], name: str, entry: Entry | None) -> list[str] | None:
    """Its lines; None: it is no text, or too large to show."""
    if entry is None:
        return []
    if entry.mode == "link":
        return [f"link to {entry.link}\n"]
    if entry.size > FILE_LIMIT:
        return None
    with _opened(archives[entry.place]) as tar:
        content = tar.extractfile(name)
        data = content.read() if content else b""
    try:
        return None if b"\0" in data else data.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None


def _diff(name: str, a: list[str] | None, b: list[str] | None) -> str | None:
    if a is None or b is None:
        return None
    lines = difflib.unified_diff(a, b, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


# Fetched -------------------------------------------------------------------------------------------------------------


def compare(a: Job, b: Job, blobs: Blobs, now: float) -> DiffView:
    """What differs from `a` to `b`. A bundle that is gone is told in `files_unknown`; raises Transient, Refused when
    the bucket does not answer."""
    changed, unknown, cut = _fetched(a, b, blobs)
    return DiffView(
        a=_side(a),
        b=_side(b),
        spec=specs(dump(a.spec), dump(b.spec)),
        outcome=outcomes(a, b, now),
        files=changed,
        files_unknown=unknown,
        cut=cut,
    )


def _fetched(a: Job, b: Job, blobs: Blobs) -> tuple[list[FileChangeView], str, bool]:
    # a bundle is named by its content, and lies in the bucket of its job's region
    if [_name(path) for path in a.bundles] == [_name(path) for path in b.bundles]:
        return [], "", False
    try:
        old, new = ([blobs.get(path, timeout=FETCH) for path in job.bundles] for job in (a, b))
        found, cut = files(old, new)
    except NotFound as error:
        return [], f"a bundle is gone: {error.message}", False
    except ValueError as error:
        return [], str(error), False
    return found, "", cut


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
