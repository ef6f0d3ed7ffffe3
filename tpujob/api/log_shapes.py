"""Shapes of a job's output: pages of a running log, windows of lines, matches of a search.

Lines are numbered from 1 for each host and attempt. Dropped lines are counted, so the number of a line never changes.
"""

from dataclasses import dataclass
from typing import Literal, NotRequired

from typing_extensions import TypedDict


class LogLine(TypedDict):
    host: int
    at: str
    text: str
    line: NotRequired[int]  #: its number


class LogPage(TypedDict):
    lines: list[LogLine]
    cursor: str  #: pass it back to get later lines
    done: bool  #: nothing more will come
    attempt: NotRequired[int]  #: the attempt of the lines; 0: there is none yet


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A page in one piece, for long logs. Over HTTP its bytes are the body, the rest are headers."""

    data: bytes  #: whole lines: host, space, seconds since the epoch, space, what the program wrote
    cursor: str  #: pass it back to get later lines
    done: bool  #: nothing more will come
    more: bool  #: more output can be read at once
    #: what the reader should know: why lines come late, or that the last ones are missing
    note: str = ""


class WindowQuery(TypedDict, total=False):
    """The lines of an attempt to return. Default: the last ones."""

    attempt: int  #: left out: the newest
    host: int  #: its lines alone; left out: those of all hosts, by time
    line: int  #: the place: this line
    of: int  #: the host that `line` is of; left out: `host`, or else 0
    part: float  #: the place, from 0, the beginning, to 1, the end
    side: Literal["around", "after", "before"]  #: of the place; `around` has it in it
    lines: int  #: at most
    width: int  #: bytes of a line that are shown at most
    text: str  #: to be marked in the lines
    regexp: bool
    ignore_case: bool


class WindowLine(TypedDict):
    host: int
    line: int
    at: str
    text: str
    cut: int  #: bytes of it that are not shown
    marks: list[tuple[int, int]]  #: matching parts of the text: begin and end


class LogGap(TypedDict):
    """Lines that were dropped, as the log grew beyond its limit, or that an agent had numbered and not stored."""

    line: int  #: the first of them
    lines: int


class LogHost(TypedDict):
    host: int
    lines: int  #: that can be read
    bytes: int
    missing: list[LogGap]


class LogWindow(TypedDict):
    attempt: int  #: 0: there is none yet
    began_at: str  #: when it began; empty: there is none
    lines: list[WindowLine]
    before: int  #: how many lines come before them
    total: int  #: lines that can be read, of the hosts that were asked for
    hosts: list[LogHost]  #: of the attempt, whatever was asked for
    notes: list[str]  #: what is missing of those hosts' lines, in words
    cursor: str  #: for `logs`: after the last line; empty: these are not the last lines
    done: bool  #: nothing more will come


class SearchQuery(TypedDict, total=False):
    """The text to search for in all lines of an attempt."""

    attempt: int  #: left out: the newest
    host: int  #: in its lines alone
    text: str
    regexp: bool  #: the text is a pattern of RE2
    ignore_case: bool
    traceback: bool  #: where a traceback begins; several of one failure are one
    line: int  #: matches from this line on
    of: int  #: the host that `line` is of; left out: `host`, or else 0
    after: bool  #: without that line itself
    limit: int  #: matches in one answer
    width: int


class LogMatches(TypedDict):
    matches: list[WindowLine]
    first: int  #: the number of the first of them among all matches, from 1; one more than `matching`: there is none
    matching: int  #: lines that match, in all
    previous: WindowLine | None  #: the match before these
    complete: bool  #: False: there was no time for all of it; asking again goes on
    searched: int  #: bytes
    bytes: int  #: that there are
