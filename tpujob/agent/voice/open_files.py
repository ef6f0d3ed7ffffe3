"""How many files the agent may open: a host is linked to each other one, and a session may usually open 1024 files."""

from __future__ import annotations

import contextlib
import resource

SPARE = 256  #: that the agent may have open besides its links

_BEFORE = resource.getrlimit(resource.RLIMIT_NOFILE)


def allow(links: int) -> None:
    """From now on this process may open so many more files, as far as its hard limit lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = links + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def as_before(pid: int) -> None:
    """That process, a child, may open as many as its host lets it, whatever this one was allowed."""
    with contextlib.suppress(OSError):  # it may have ended
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _BEFORE)
