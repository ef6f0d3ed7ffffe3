"""Finds the files of scalars in the program's folder, and reads them as they grow."""

from __future__ import annotations

import os
import re
import time
from itertools import islice
from typing import Dict, Iterator, List, Optional

from tpujob.agent.base import Note
from tpujob.agent.scalars.tail import Scalars, Tail, Unusable
from tpujob.agent.scalars.tensorboard import EventFile
from tpujob.agent.scalars.wandb import RunFile

MAX_FILES = 8
#: seconds between two searches, at least; searches take a hundredth of the time at most
EVERY = 15.0
MAX_DEPTH, MAX_ENTRIES = 8, 20_000  #: of a search
_EVENTS = re.compile(r"\.tfevents\.")
_RUN = re.compile(r"^run-[^/]*\.wandb$")
#: folders without results, which may have very many files
_SKIPPED = frozenset(["node_modules", "site-packages", "__pycache__"])


class ScalarFiles:
    """The files of scalars below a folder that were written since `since`, in seconds since 1970."""

    def __init__(self, folder: str, since: float, note: Note) -> None:
        self._folder, self._since, self._note = folder, since, note
        self._files: Dict[str, Optional[Tail]] = {}  #: by path; None: left out
        self._first_run = ""  #: the folder of the first file with scalars
        self._search_at = 0.0  #: monotonic

    def look(self) -> List[Scalars]:
        """Return the scalars since the last call, by time; of a file at most `tail.MAX_READ` bytes. A file that cannot
        be read is named in a note, and left out from then on."""
        began = time.monotonic()
        if began >= self._search_at:
            self._search()
            ended = time.monotonic()
            self._search_at = ended + max(EVERY, 100 * (ended - began))
        rows: List[Scalars] = []
        for path, file in self._files.items():
            try:
                rows += self._named(path, file) if file else []
            except (Unusable, OSError) as error:
                self._files[path] = None
                self._note("scalars: %s is left out: %s" % (self._shown(path), error))
        return sorted(rows, key=lambda row: row.at)

    def _search(self) -> None:
        for path in _walk(self._folder):
            if len(self._files) >= MAX_FILES:
                return
            name = os.path.basename(path)
            kind = EventFile if _EVENTS.search(name) else RunFile if _RUN.match(name) else None
            if kind and path not in self._files and _stat(path, "st_mtime") >= self._since:
                self._files[path] = kind(path)

    def _named(self, path: str, file: Tail) -> List[Scalars]:
        """Return the new rows of a file. Names of other runs than the first get that of their folder, as TensorBoard's
        `train` and `validation` have the same."""
        begun, rows, run = file.has_rows, file.read(), os.path.dirname(path)
        if not rows:
            return []
        if not begun:
            text = "scalars of %s are shown, and decide nothing (`watch: off` ends it)"
            self._note(text % self._shown(path))
        self._first_run = self._first_run or run
        if run == self._first_run:
            return rows
        prefix = os.path.basename(run) + "/"
        return [
            Scalars(step, at, {prefix + name: value for name, value in values.items()})
            for step, at, values in rows
        ]

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self._folder)


def _walk(folder: str) -> Iterator[str]:
    """Yield the files below a folder by name, the upper ones first, of MAX_ENTRIES names. Links are not followed,
    nor mounts: to list a bucket is billed."""
    level, entries, device = [folder], 0, _stat(folder, "st_dev")
    for _ in range(MAX_DEPTH):
        below: List[str] = []
        for parent in level:
            try:
                with os.scandir(parent) as names:
                    found = list(islice(names, MAX_ENTRIES - entries))
            except OSError:
                continue
            entries += len(found)
            for entry in sorted(found, key=lambda entry: entry.name):
                if entry.is_file(follow_symlinks=False):
                    yield entry.path
                elif _may_have_results(entry) and _stat(entry.path, "st_dev") == device:
                    below.append(entry.path)
        level = below


def _may_have_results(entry: os.DirEntry[str]) -> bool:
    named = not entry.name.startswith(".") and entry.name not in _SKIPPED
    return named and entry.is_dir(follow_symlinks=False)


def _stat(path: str, field: str) -> float:
    """Return a field of the file's status; 0: it is gone."""
    try:
        return float(getattr(os.stat(path), field))
    except OSError:
        return 0.0
