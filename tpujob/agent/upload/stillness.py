"""Which files of the output folders are whole, as far as their changes show it.

A file counts as whole once no file of its folder, and of the folders in it, has changed for STILL seconds. A file
directly in an output folder counts by itself, and no file waits for a log.
"""

from __future__ import annotations

import os
import re
from typing import Collection, Dict, List, Tuple, TypeVar

STILL = 10.0  #: seconds
#: what is not complete: `100.orbax-checkpoint-tmp/`, `tmp-checkpoint-5/`, `.tmp8s3k`, `ckpt.pt.part`
_TEMPORARY = re.compile(
    r"/\.?tmp|[._-]te?mp(?:[/._-]|\d|$)|\.(?:incomplete|part|partial|swp|lock)(?:/|$)"
)
#: what grows while the program runs
_LOG = re.compile(
    r"(?:\.(?:log|out|err|jsonl|csv|tsv|wandb)|(?:log|metrics)[^/]*\.txt|\.tfevents\.[^/]*)$"
)

Version = TypeVar("Version")


def is_log(name: str) -> bool:
    """Return whether the name is one of files that grow while the program runs."""
    return bool(_LOG.search(name))


class Stillness:
    """The files as they were seen by `whole`, and since when."""

    def __init__(self, folders: Collection[str]) -> None:
        """`folders` are the output folders."""
        self._folders = frozenset(folders)
        self._seen: Dict[str, Tuple[object, float]] = {}  #: version, and when it was first seen

    def whole(self, files: Dict[str, Version], now: float) -> Dict[str, Version]:
        """Return those of the files of the output folders that are whole at the time `now`."""
        before, self._seen = self._seen, {}
        folder_of: Dict[str, str] = {}
        changed: Dict[str, float] = {}  #: the newest change below each folder
        for name, version in files.items():
            seen, since = before.get(name, (None, now))
            since = since if seen == version else now
            self._seen[name] = version, since
            above = _parents(name, self._folders)
            if _TEMPORARY.search(name[len(above.pop()) :]):
                continue
            folder_of[name] = above[0] if above else ""
            for folder in [] if is_log(name) else above:
                changed[folder] = max(changed.get(folder, since), since)
        return {
            name: files[name]
            for name, folder in folder_of.items()
            if now - max(self._seen[name][1], changed.get(folder, 0)) >= STILL
        }


def _parents(name: str, tops: Collection[str]) -> List[str]:
    """Return the folders of a file up to its output folder, the innermost first."""
    folders = [os.path.dirname(name)]
    while folders[-1] and folders[-1] not in tops:
        folders.append(os.path.dirname(folders[-1]))
    return folders
