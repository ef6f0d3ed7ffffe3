"""Names: which file of a folder can be an object, and which object can be a file. Pure.

Names are opaque. Nothing is normalised or replaced: a name that has no counterpart is refused, with the reason.
"""

from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from tpujob.errors import IllegalInState, TpujobError

#: bytes of a name, documented for Cloud Storage
_LONGEST_NAME = 1024
#: bytes of one part of a path, on every file system in use
_LONGEST_PART = 255
#: the folder in which downloads wait until they are whole; never uploaded
PARTS_FOLDER = ".tpujob-parts"


def key_of(path: bytes) -> str | None:
    """Return the path of a file below its folder as text; None when it is not UTF-8."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return None


def why_no_object(name: str) -> str:
    """Return why Cloud Storage does not accept an object of that name; empty: it does. The rules are documented."""
    if "\n" in name or "\r" in name:
        return "the name of an object has no line break"
    if len(name.encode()) > _LONGEST_NAME:
        return f"the name of an object has at most {_LONGEST_NAME} bytes"
    if name.startswith(".well-known/acme-challenge/"):
        return "names of objects do not begin with .well-known/acme-challenge/"
    return ""


def why_no_file(key: str) -> str:
    """Return why no file below a folder can have that path; empty: one can."""
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
    if max(len(part.encode()) for part in parts) > _LONGEST_PART:
        return f"a part of the name has more than {_LONGEST_PART} bytes"
    return ""


class FoldersAndFiles:
    """Finds, in sorted keys, those that would need a file to be a folder: `a` and `a/b`."""

    def __init__(self) -> None:
        self._files: list[str] = []  # keys of which one below may still come

    def why_not(self, key: str) -> str:
        """As `why_no_file`; keys must come in the order of their UTF-8 bytes. The shorter key stays a file."""
        encoded = key.encode()
        self._files = [f for f in self._files if encoded < f.encode() + b"0"]  # 0 follows /
        if any(key.startswith(f + "/") for f in self._files):
            return "another object has the name of its folder"
        self._files.append(key)
        return ""


# Commands that write to this machine ---------------------------------------------------------------------------------


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
        raise TpujobError(text, hint="whole files are kept: run the same command again") from error
