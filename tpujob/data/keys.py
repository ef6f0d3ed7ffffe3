"""Rules for names of files that objects can have (`protocol/left_out.py` has the reverse); also a lock for commands.

Names are opaque and never normalised or replaced: a name without a counterpart is refused, with the reason.
"""

from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from tpujob.errors import IllegalInState, TpujobError

_MAX_PART = 255  #: bytes of one part of a path, on all usual file systems
PARTS_FOLDER = ".tpujob-parts"  #: the folder of incomplete downloads, which is never uploaded


def why_no_file(key: str) -> str:
    """Return why no file below a folder can have that path; empty: the path is valid."""
    if not key or key.endswith("/"):
        return "the name ends with a slash, as that of a folder"
    if key.startswith("/") or "//" in key:
        return "the name has an empty part, which a path cannot have"
    parts = key.split("/")
    if "." in parts or ".." in parts:
        return "the name has . or .. as a part"
    if "\0" in key:
        return "the name has a NUL"
    if parts[0] == PARTS_FOLDER:
        return f"{PARTS_FOLDER} is the folder of unfinished downloads"
    if max(len(part.encode()) for part in parts) > _MAX_PART:
        return f"a part of the name has more than {_MAX_PART} bytes"
    return ""


class FoldersAndFiles:
    """A detector of keys in a sorted stream that need a file to be a folder, such as `a/b` after `a`."""

    def __init__(self) -> None:
        self._files: list[str] = []  # keys that may be the folder of a later key

    def why_not(self, key: str) -> str:
        """Return why the key cannot be a file; empty: it can. Keys must come in the order of their UTF-8 bytes."""
        encoded = key.encode()
        self._files = [f for f in self._files if encoded < f.encode() + b"0"]  # 0 follows /
        if any(key.startswith(f + "/") for f in self._files):
            return "another object has the name of its folder"
        self._files.append(key)
        return ""


# Commands that write to this machine ---------------------------------------------------------------------------------


@contextmanager
def exclusive_lock(
    path: Path, message: str, *, hint: str = "wait for it, or end it"
) -> Generator[None]:
    """Lock a file for the block. Raises IllegalInState with `message` while another process has it, and OSError."""
    with path.open("w") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except OSError:
            raise IllegalInState(message, hint=hint) from None
        yield


@contextmanager
def raising_tpujob_error() -> Generator[None]:
    """Raise TpujobError in place of OSError."""
    try:
        yield
    except OSError as error:
        text = f"cannot read or write a file: {error.strerror or error}"
        raise TpujobError(text, hint="whole files are kept: run the same command again") from error
