"""One process at a time, by a lock on a file, which ends with its process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from tpujob.errors import IllegalInState


@contextmanager
def alone(path: Path, other: str, *, hint: str = "wait for it, or end it") -> Generator[None]:
    """`path`: of the lock. Raises IllegalInState, with what the other process does, while it holds the lock; OSError
    when the file cannot be made."""
    with path.open("w") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except OSError:
            raise IllegalInState(other, hint=hint) from None
        yield
