"""Paths of home folders. On TPU VMs they are the same everywhere, and an environment in the bucket holds its path; here
hosts exist beside each other. So a path is a link that leads to one host's home after another's.
"""

import itertools
from pathlib import Path


class Homes:
    """Links in `folder`, numbered from 0."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, home: Path) -> Path:
        """From now on the first path that leads nowhere leads to this folder, until the folder is removed."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths = (self._folder / str(number) for number in itertools.count())
        path = next(path for path in paths if not path.exists())
        path.unlink(missing_ok=True)
        path.symlink_to(home)
        return path
