"""A message in words: what every sink says, in its own markup. The same message has the same words in every try."""

from collections.abc import Iterable, Mapping
from typing import Any

from tpujob.domain.notify.model import Kind, Message, Note
from tpujob.domain.text import many, one_line, rfc3339

_DID: Mapping[Kind, str] = {
    Kind.SUCCEEDED: "succeeded",
    Kind.FAILED: "failed",
    Kind.CANCELLED: "cancelled",
    Kind.HELD: "stopped, slice held",
    Kind.WAITING: "waiting for hardware",
    Kind.STUCK: "stuck",
    Kind.BUDGET_WARNED: "budget nearly used",
    Kind.BUDGET_USED_UP: "budget used up",
    Kind.LEAK: "slice that no job claims",
    Kind.HOST_REFUSED: "machine refused",
    Kind.SUMMARY: "daily summary",
    Kind.TEST: "test",
}
_SEE: Mapping[Kind, str] = {
    Kind.SUCCEEDED: "tpujob show",
    Kind.BUDGET_WARNED: "tpujob show",
    Kind.LEAK: "tpujob leaks",
    Kind.SUMMARY: "tpujob list --all",
    Kind.TEST: "tpujob notifications",
}
#: the page of the backend for what is about no single job
_PAGES: Mapping[Kind, str] = {
    Kind.LEAK: "/capacity",
    Kind.HOST_REFUSED: "/hosts",
    Kind.BUDGET_WARNED: "/spend",
    Kind.BUDGET_USED_UP: "/spend",
    Kind.TEST: "/notifications",
}


def headline(message: Message) -> str:
    """One line of at most 150 characters, without line breaks or invisible characters."""
    note, count = message.notes[0], len(message.keys)
    did = _DID[note.kind]
    if note.kind in (Kind.SUMMARY, Kind.TEST):
        return one_line(f"tpujob: {did}", 150)
    why = f": {note.cause}" if note.cause and note.kind is not Kind.BUDGET_USED_UP else ""
    where = f" in {note.zone}" if note.zone else ""
    if count == 1:
        whose = f"{note.name} ({note.job}) " if note.job else ""
        return one_line(f"{whose}{did}{why}{where}", 150)
    about = f"{many(count, 'job')} " if note.job else f"{count} times "
    return one_line(f"{about}{did}{why}{where}", 150)


def line(note: Note) -> str:
    """What a message says of one note."""
    return one_line(
        f"{note.name} ({note.job}) of {note.user}: {note.text}" if note.job else note.text, 500
    )


def lines(message: Message) -> list[str]:
    """What is below the headline; how many notes are not shown, too."""
    found = [line(note) for note in message.notes]
    for note in message.notes:
        found += [one_line(each, 200) for each in note.lines if each[:100] not in note.text]
    if more := len(message.keys) - len(message.notes):
        found.append(f"and {more:,} more")
    return found


def command(note: Note) -> str:
    """What to type to see why."""
    see = _SEE.get(note.kind, "tpujob why")
    if note.job:
        return f"{see} {note.job}"
    if note.kind in (Kind.BUDGET_WARNED, Kind.BUDGET_USED_UP):
        return "tpujob cost budgets"
    return "tpujob hosts" if note.kind is Kind.HOST_REFUSED else see


def link(page: str, note: Note) -> str:
    """Where it is to be seen; empty when nobody has said where the page is."""
    if not page:
        return ""
    return f"{page.rstrip('/')}{f'/jobs/{note.job}' if note.job else _PAGES.get(note.kind, '/')}"


def commands(notes: Iterable[Note], most: int = 3) -> list[str]:
    """Of the first of these."""
    return list(dict.fromkeys(map(command, notes)))[:most]


def document(message: Message, page: str) -> dict[str, Any]:
    """For programs: a type, a time and data, as Standard Webhooks has it."""
    first = message.notes[0]
    return {
        "type": f"job.{first.kind}" if first.job else f"backend.{first.kind}",
        "timestamp": rfc3339(message.at),
        "data": {
            "headline": headline(message),
            "kind": first.kind.value,
            "cause": first.cause,
            "zone": first.zone,
            "count": len(message.keys),
            "notes": [_entry(note, page) for note in message.notes],
        },
    }


def _entry(note: Note, page: str) -> dict[str, Any]:
    return {
        "at": rfc3339(note.at),
        "job": note.job,
        "name": note.name,
        "user": note.user,
        "attempt": note.attempt,
        "cause": note.cause,
        "zone": note.zone,
        "text": one_line(note.text, 500),
        "lines": [one_line(each, 200) for each in note.lines],
        "command": command(note),
        "url": link(page, note),
    }
