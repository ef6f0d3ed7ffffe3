"""Copies of a job's files: which objects a `JOB:PATH` names, which files a path names, and under which keys they are
copied. `sync/` copies them."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tpujob.data.objects import LocalFile, ObjectFacts, Objects
from tpujob.data.sync.endpoints import files_of, local_file
from tpujob.errors import BadRequest, NotFound
from tpujob.protocol.left_out import LeftOut
from tpujob.protocol.paths import LASTING_FOLDERS

_WILD = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class JobPath:
    """A place in the folder of a job in the bucket."""

    job: str
    path: str  #: without slashes at its ends
    is_folder: bool  #: it was written with a slash at its end

    def __str__(self) -> str:
        return f"{self.job}:{self.path}{'/' if self.is_folder and self.path else ''}"


def parse_place(text: str) -> JobPath | str:
    """Return the place that a word of `tpujob cp` names: `JOB:PATH`, or a path of this machine, which may have a colon
    after a slash only. Raises BadRequest."""
    if "://" in text:
        raise BadRequest(
            f"{text} is neither JOB:PATH nor a path of this machine",
            hint="`tpujob data sync` copies from and to buckets.",
        )
    job, colon, path = text.partition(":")
    if not colon or not job or "/" in job:
        return text
    parts = path.strip("/").split("/")
    if path.startswith("//") or {".", ".."} & {*parts} or "" in parts[1:]:
        raise BadRequest(
            f"{text} names no place in the bucket",
            hint="Write JOB:PATH, such as 42:checkpoints/200.",
        )
    return JobPath(job, "/".join(parts), path.endswith("/"))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The items of one copy."""

    items: list[tuple[str, LocalFile | ObjectFacts]]  #: with their keys, in the order of UTF-8
    left_out: list[LeftOut]
    one_file: bool  #: the words named one file, and no folder


def choose_objects(objects: Objects, bucket: str, folder: str, paths: Sequence[str]) -> Chosen:
    """Return the objects that the paths name below `folder`, which ends in a slash. A path names an object or all that
    is below it; its parts may have the wildcards of a shell. Keys begin with the last part of the path, or with its
    first part that has a wildcard. Raises NotFound, BadRequest."""
    items: dict[str, ObjectFacts] = {}
    files = 0
    for path in paths:
        parts = path.split("/") if path else []
        wild = next((n for n, part in enumerate(parts) if _WILD.search(part)), len(parts))
        start = min(wild, max(len(parts) - 1, 0))
        chosen = 0
        for facts in _below(objects, bucket, folder, parts[:wild]):
            names = facts.name[len(folder) :].split("/")
            if len(names) < len(parts) or names[-1] == "":
                continue
            if all(map(fnmatchcase, names[wild:], parts[wild:])):
                key = "/".join(names[start:])
                _add(items, key, facts)
                chosen += 1
                files += len(names) == len(parts)
        if not chosen:
            raise NotFound(f"it has nothing at {path!r}")
    return Chosen(_sorted(items), [], one_file=len(items) == files == 1)


def _below(
    objects: Objects, bucket: str, folder: str, parts: Sequence[str]
) -> Iterator[ObjectFacts]:
    """Yield the object of that path, and those below it."""
    path = folder + "/".join(parts)
    if parts and (facts := objects.look(bucket, path)):
        yield facts
    for page in objects.pages(bucket, path + "/" if parts else path):
        yield from page


def choose_files(paths: Sequence[str]) -> Chosen:
    """Return the files that the paths of this machine name: a file, or a folder with all that is below it. Keys begin
    with the last part of the path. Raises NotFound, BadRequest."""
    items: dict[str, LocalFile] = {}
    left_out: list[LeftOut] = []
    for path in paths:
        name = Path(path).name
        if os.path.isdir(path):
            for file in files_of(os.fsencode(path)):
                if isinstance(file, LeftOut):
                    left_out.append(file)
                else:
                    _add(items, f"{name}/{file.key}" if name else file.key, file)
        elif os.path.isfile(path):
            real = os.fsencode(os.path.realpath(path))
            _add(items, name, local_file(name, real, os.stat(real)))
        else:
            raise NotFound(f"there is no file or folder {path}")
    one_file = len(paths) == 1 and os.path.isfile(paths[0])
    return Chosen(_sorted(items), left_out, one_file)


def upload_folder(
    objects: Objects, bucket: str, folder: str, place: JobPath, chosen: Chosen
) -> tuple[str, str]:
    """Return where to copy the chosen files: the folder below that of the job, which ends in a slash, and the new name
    of a single file; empty: each keeps its name. Raises BadRequest for a place that programs do not save in."""
    if not f"{place.path}/".startswith(LASTING_FOLDERS):
        raise BadRequest(
            f"{place}: files are copied below checkpoints/ and outputs/ of a job",
            hint=f"Such as {place.job}:outputs/",
        )
    is_folder = place.is_folder or not chosen.one_file or f"{place.path}/" in LASTING_FOLDERS
    if not is_folder:
        is_folder = any(page for page in objects.pages(bucket, f"{folder}{place.path}/"))
    parent, _, name = place.path.rpartition("/")
    return (place.path + "/", "") if is_folder else (parent + "/", name)


def _add(items: dict[str, LocalFile] | dict[str, ObjectFacts], key: str, item: object) -> None:
    other = items.setdefault(key, item)  # pyright: ignore[reportArgumentType]
    if other is not item and other != item:
        raise BadRequest(
            f"two of the named files would be copied to {key}", hint="Copy them one by one."
        )


def _sorted(
    items: dict[str, LocalFile] | dict[str, ObjectFacts],
) -> list[tuple[str, LocalFile | ObjectFacts]]:
    pairs: Iterable[tuple[str, LocalFile | ObjectFacts]] = items.items()
    return sorted(pairs, key=lambda pair: pair[0].encode())
