"""What holds for commands that write to this machine: one process at a time, and a clear error for a disk."""

from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from tpujob.errors import IllegalInState, TpujobError


@contextmanager
def alone(path: Path, other: str, *, hint: str = "wait for it, or end it") -> Generator[None]:
    """`path`: of a file whose lock ends with its process. Raises IllegalInState while another process holds it, with
    what that one does; OSError when the file cannot be made."""
    with path.open("w") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except OSError:
            raise IllegalInState(other, hint=hint) from None
        yield


@contextmanager
def explained() -> Generator[None]:
    """Raises TpujobError in place of OSError."""
    try:
        yield
    except OSError as error:
        text = f"cannot read or write a file: {error.strerror or error}"
        raise TpujobError(text, hint="what is whole stays; the same command goes on") from error
