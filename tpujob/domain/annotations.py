"""Rules for the notes and tags of jobs. Pure."""

import re
from collections.abc import Iterable

from tpujob.domain.text import one_line
from tpujob.errors import BadRequest

MAX_NOTE = 500  #: characters of a note
MAX_TAGS = 20  #: tags of one job
TAG = r"[a-z0-9][a-z0-9._-]{0,39}"


def checked_note(note: str) -> str:
    """Return the note as one line. Raise BadRequest if it is too long."""
    line = one_line(note, MAX_NOTE + 1)
    if len(line) > MAX_NOTE:
        raise BadRequest(f"note: it has more than {MAX_NOTE} characters")
    return line


def changed_tags(tags: Iterable[str], add: Iterable[str], remove: Iterable[str]) -> tuple[str, ...]:
    """Return the tags after the change, sorted. Raise BadRequest for a wrong tag, or if they are too many."""
    added, removed = set(add), set(remove)
    for tag in sorted(added):
        if not re.fullmatch(TAG, tag):
            raise BadRequest(
                f"{tag[:60]!r} cannot be a tag",
                hint="A tag has a-z, 0-9, '.', '_' and '-', up to 40 characters, such as baseline.",
            )
    if both := sorted(added & removed):
        raise BadRequest(f"the tag {both[0][:60]} is both added and removed")
    changed = sorted((set(tags) | added) - removed)
    if added and len(changed) > MAX_TAGS:
        raise BadRequest(f"a job has at most {MAX_TAGS} tags, these would be {len(changed)}")
    return tuple(changed)
