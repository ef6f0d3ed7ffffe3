"""Files that a bucket cannot have, or that cannot be read: each is left out by name, and the others are kept."""

import errno
from typing import Hashable, NamedTuple, Optional

NOT_UTF8 = "the name is not UTF-8"
NOT_A_FILE = "not an ordinary file"
MAX_NAME = 1024  #: bytes of an object's name (documented)
#: errors of this process, its host or its network, not of a file; EFBIG: of what the process may write
_OF_ALL_FILES = (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, None
)  # fmt: skip


class LeftOut(NamedTuple):
    """A file, a folder with all its files, or an object that is not copied."""

    name: str
    reason: str
    version: Optional[Hashable] = None  #: differs once the file has changed; None: not known


def why_no_object(name: str) -> str:
    """Return why Cloud Storage rejects the name of an object (documented); empty: the name is valid."""
    if not is_utf8(name):
        return NOT_UTF8
    if "\n" in name or "\r" in name:
        return "the name has a line break"
    if len(name.encode()) > MAX_NAME:
        return "the name has more than %d bytes" % MAX_NAME
    if name.startswith(".well-known/acme-challenge/"):
        return "names of objects do not begin with .well-known/acme-challenge/"
    return ""


def is_utf8(name: str) -> bool:
    """Return whether the name of a file, as the system gives it, has bytes of UTF-8 alone."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


def is_of_one_file(error: OSError) -> bool:
    """Return whether other files can still be copied."""
    return error.errno not in _OF_ALL_FILES and not isinstance(
        error, (ConnectionError, TimeoutError)
    )


def reason_of(error: OSError) -> str:
    return "cannot be read: %s" % (error.strerror or error)
