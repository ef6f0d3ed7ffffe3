"""Finds the last error of a program in the end of its output, and chooses the lines that show why it ended badly.

`domain/failures/evidence.py` decides what they prove. Programs print anything: no pattern here takes more than time in
proportion to a line, of which at most TAIL are read.
"""

from __future__ import annotations

import json
import re
from enum import IntEnum
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tpujob.protocol.limits import MAX_EVIDENCE, MAX_EVIDENCE_LINES
from tpujob.protocol.text import visible

#: newest lines of output in which evidence is searched, and bytes of each
TAIL, TAIL_WIDTH = 2000, 400
LAST_WORDS = 15  #: last lines, besides the error, that are evidence
BEFORE = 6  #: lines before the error that are evidence
FRAMES, MORE = 40, 8  #: lines of evidence before the line that names the error, and after it
#: an error with more lines after it, and more seconds, was not the last that happened
STALE_LINES, STALE_SECONDS = 20, 60.0
BOX = 400  #: most lines that one error looks ahead
MOMENT = 1.0  #: seconds by which a reported step must be later than a line to have followed it
STEPPED = 3  #: lines of steps after an error that prove that the program went on


class TailLine(NamedTuple):
    """One of the newest lines of output."""

    text: bytes
    at: float = 0.0  #: seconds since the epoch
    tag: bytes = b""  #: of the command that printed it, or of the agent's notes; empty: the program


class Kind(IntEnum):
    """What an error near the end of a program says of its reason: of several, the last of the highest kind counts."""

    LAUNCHER = 0  #: a launcher reports how its child ended, whose own error says more
    ASIDE = 1  #: of a thread or at exit, which ends no program; or named without a traceback
    FAULT = 2  #: the interpreter died, often while it reported another error
    NATIVE = 3  #: a library ended the process
    PEER = 4  #: a traceback that the loss of another process or host may have caused
    OWN = 5  #: any other traceback


class Error(NamedTuple):
    """An error in the output: indices of its lines."""

    first: int
    name: int  #: of the line that names the error
    last: int  #: of the rest of its message
    kind: Kind
    prefix: str  #: pattern of what its process prints before each line; empty: nothing
    causes: Tuple[int, ...] = ()  #: of the lines that name the errors it was raised from


_HEADER = "Traceback (most recent call last)"
_CAUSED = "The above exception was the direct cause of the following exception"
#: box of `rich`: the line that names the error comes after its end
_BOX, _BOX_END = re.compile("^[╭┌].*Traceback"), re.compile("^[╰└]")
_RAY = re.compile(r"RayTaskError\(\w+\): ")
#: a line of a native error; a progress bar may stand before it
_FATAL = re.compile(
    r"\bF\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+:\d+\]|\d{4}-\d\d-\d\d \S+: F \S+:\d+\]"
    r"|terminate called after throwing|Assertion `.*' failed\.|^panic: |panicked at "
)
_BAR = r"^(?:.*?(?=\bF\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \S+: F ))?"
_NOT_FOUND = re.compile(r"\S*(?:ba|da|z)?sh: .*: (?:command )?not found")
_BARE = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?:: |$)")
_LAUNCHER = re.compile(
    r"ChildFailedError|ProcessExitedException|CalledProcessError|SpawnException|SignalException"
    r"|SimplifiedTraceback|JaxStackTraceBeforeTransformation|^SystemExit|^KeyboardInterrupt"
    r"|(?:[Ss]ee|[Cc]heck)\b.{1,60}\babove\b|died unexpectedly|WorkerCrashedError"
)
_SIGNAL = re.compile(r"^\s+traceback\s*: (?=Signal \d)")
_LABEL = f"(?:{_SIGNAL.pattern})?"
#: what Python prints before the traceback of an error that does not end the program
_ASIDE = re.compile(
    r"^(?:Exception ignored in|Error in atexit|--- Logging error|Exception in thread|Task exception was never)"
)
_PEER = re.compile(
    r"[Cc]onnection (?:reset|closed|refused)|[Ss]ocket closed|[Bb]roken pipe|heartbeat|UNAVAILABLE"
    r"|DEADLINE_EXCEEDED|[Bb]arrier|coordination|timed? ?out"
)
#: the beginning of a line that is not the rest of an error's message
_NEXT = re.compile(
    r"^(?:[EFIW]\d{4} |\d{4}-\d\d-\d\d[ T]|\[?\d\d:\d\d:\d\d|\*\*\* |frame #|[-=~]{10}|wandb:|sys:1:|tcmalloc"
    r"|terminate called|Fatal Python|Exception ignored|Exception in |Error in atexit|During handling"
    r"|The above exception|The preceding stack|For simplicity, JAX|\S+:\d+: \w*Warning|\"\"\"$)"
    r"|^(?:ba)?sh: line \d+: +\d+ "
)
#: a line of a trainer about a step; a bar at its begin is none
_STEP = re.compile(
    r"\b(?:step|iter|iteration|epoch)s?\b\W{0,4}\d+\b(?:.*\b(?:loss|ms|sec|acc|eta|lr)|\W*$)"
    r"|(?<![\d/])[1-9]\d*/\d+ \[\d\d:\d\d|\bloss\b['\"]?\s*[:=]\s*['\"]?\d",
    re.IGNORECASE,
)


def pick_lines(
    tail: Sequence[TailLine], ended: float = 0.0, stepped: float = 0.0, *, ran: bool = True
) -> bytes:
    """Return the evidence of a report, in the order of the log: the last error, the lines before it, and the last lines
    of the program; unless it `ran`, of the last command before it. If room is short, what names the error is kept.
    `ended` and `stepped` are the times of the program's end and of its newest reported step."""
    tag = b"" if ran else _last_tag(tail)
    chosen = [line for line in tail if line.tag == tag]
    lines = [_text(line) for line in chosen]
    steps = [_is_step(line) for line in lines]
    ago = [max(0.0, ended - line.at) for line in chosen]
    error = find_error(lines, ago, steps)
    if error and chosen[error.name].at < stepped - MOMENT:
        error = None
    parts = _parts(lines, error) if error else {}
    prefix = re.compile(error.prefix if error else "")
    plain = [i for i, line in enumerate(lines) if i not in parts and line.strip()]
    words = plain[-LAST_WORDS:]
    before = [i for i in plain if error and i < error.first][-BEFORE:]
    frames = [i for i in parts if parts[i] == "frame"]
    named = [*sorted(i for i in parts if parts[i] not in ("", "frame")), *frames[::-1]]
    later = {i: len(plain) - n - 1 for n, i in enumerate(plain)}
    picked: Dict[int, Dict[str, object]] = {}
    room, least = MAX_EVIDENCE - 64, MORE + 4
    for i in [*named[:least], *words[:-4:-1], *named[least:], *words[::-1], *before[::-1]]:
        text = prefix.sub("", lines[i], count=1) if i in parts else lines[i]
        went_on = (i not in parts and any(steps[i + 1 :])) or chosen[i].at < stepped - MOMENT
        entry = _entry(text, round(ago[i], 1), later.get(i, 0), went_on, parts.get(i, ""))
        size = len(json.dumps(entry)) + 1
        if i not in picked and size <= room:
            picked[i] = entry
            room -= size
    return _encode([picked[i] for i in sorted(picked)])


def first_lines(lines: List[str]) -> bytes:
    """Return the evidence of a report from the first lines, as many as fit."""
    room = MAX_EVIDENCE - 64
    picked: List[Dict[str, object]] = []
    for line in lines[:MAX_EVIDENCE_LINES]:
        entry = _entry(line[:TAIL_WIDTH])
        room -= len(json.dumps(entry)) + 1
        if room < 0:
            break
        picked.append(entry)
    return _encode(picked)


def last_words(tail: Sequence[TailLine], tag: bytes) -> str:
    """Return the line that names the last error of the command with this tag, or else its last line."""
    own = [line._replace(tag=b"") for line in tail if line.tag == tag]
    lines = json.loads(pick_lines(own))["lines"]
    named = [line["text"] for line in lines if line.get("part") == "error"]
    return str((named or [line["text"] for line in lines] or [""])[-1]).strip()


def error_at_end(tail: Sequence[TailLine]) -> str:
    """Return the line that names the last error of a program that ended with 0, or the last command that was not found;
    empty: there is none in its last lines."""
    lines = [_text(line) for line in tail if not line.tag]
    error = find_error(lines, [0.0] * len(lines), [False] * len(lines))
    named = [i for i, line in enumerate(lines) if _NOT_FOUND.fullmatch(line)]
    last = max([*named, error.name] if error else named, default=-1)
    return lines[last].strip() if last >= max(0, len(lines) - LAST_WORDS) else ""


def _text(line: TailLine) -> str:
    return visible(line.text.decode("utf-8", "replace")).rstrip()


def _last_tag(tail: Sequence[TailLine]) -> bytes:
    """Return the tag of the last command that printed something."""
    tags = [line.tag for line in tail if not line.tag.startswith((b"[tpujob]", b"[stack]"))]
    return tags[-1] if tags else b""


def _is_step(line: str) -> bool:
    """Return whether a line reports a step; the search in a longer begin would take too long in lines made for that."""
    return _STEP.search(line[:200]) is not None


def _parts(lines: Sequence[str], error: Error) -> Dict[int, str]:
    """Return what each line of the error is: a `frame`, the `error` that is named, `more` of its message, a `cause` it
    was raised from; empty: one of too many."""
    prefix = re.compile(error.prefix)
    own = [i for i in range(error.first, error.last + 1) if prefix.match(lines[i])]
    parts = dict.fromkeys(own, "")
    parts.update(dict.fromkeys([i for i in own if i < error.name][-FRAMES:], "frame"))
    parts.update(dict.fromkeys([i for i in own if i > error.name][:MORE], "more"))
    return {**parts, error.name: "error", **dict.fromkeys(error.causes, "cause")}


def _entry(
    text: str, ago: float = 0.0, later: int = 0, stepped: bool = False, part: str = ""
) -> Dict[str, object]:
    facts = {"ago": ago, "later": later, "stepped": stepped, "part": part}
    return {"text": text, **{name: value for name, value in facts.items() if value}}


def _encode(lines: List[Dict[str, object]]) -> bytes:
    return json.dumps({"v": 1, "lines": lines}, separators=(",", ":")).encode()


# The last error ------------------------------------------------------------------------------------------------------


def find_error(
    lines: Sequence[str], ago: Sequence[float], steps: Sequence[bool]
) -> Optional[Error]:
    """Return the last error that the program met by itself and after which it made no steps; None: there is none.
    `ago`: seconds from each line to the end; `steps`: the lines that report one."""
    best: Optional[Error] = None
    for error in _errors(lines):
        stale = len(lines) - 1 - error.last > STALE_LINES and ago[error.name] > STALE_SECONDS
        if stale or _went_on(lines, steps, error):
            continue
        is_new = best is not None and ago[best.last] - ago[error.first] > STALE_SECONDS
        if best is None or is_new or error.kind >= best.kind:
            best = error
    return best


def _errors(lines: Sequence[str]) -> Iterator[Error]:
    """Yield all errors, each with those it was raised from."""
    i, before = 0, None
    while i < len(lines):
        error = _error_at(lines, i)
        if error:
            if before and any(_CAUSED in line for line in lines[before.last : error.first]):
                error = error._replace(causes=(*before.causes, before.name))
            yield error
            before, i = error, max(i, error.last)
        i += 1


def _went_on(lines: Sequence[str], steps: Sequence[bool], error: Error) -> bool:
    """Return whether the process of the error made steps after it."""
    own, after = re.compile(error.prefix), range(error.last + 1, len(lines))
    later = sum(steps[k] and own.match(lines[k]) is not None for k in after)
    return later >= (STEPPED if error.kind > Kind.ASIDE else 1)


def _error_at(lines: Sequence[str], i: int) -> Optional[Error]:
    """Return the error that begins with this line; None: none does."""
    line = lines[i]
    if _BOX.match(line):
        return _boxed(lines, i)
    if _HEADER in line or _RAY.search(line):
        return _traceback(lines, i)
    if _FATAL.search(line):
        what = i + 1 < len(lines) and lines[i + 1].lstrip().startswith("what():")
        name = i + 1 if what else i
        return Error(i, name, _message_end(lines, name, ""), Kind.NATIVE, _BAR)
    if line.startswith("Fatal Python error: "):
        return Error(i, i, i, Kind.FAULT, "")
    if _BARE.match(line) and len(lines) - i <= LAST_WORDS:
        kind = Kind.LAUNCHER if _LAUNCHER.search(line) else Kind.ASIDE
        return Error(i, i, _message_end(lines, i, ""), kind, "")
    return None


def _traceback(lines: Sequence[str], i: int) -> Optional[Error]:
    """Return the error of the traceback that begins with this line; None: it is cut before it names one."""
    header = lines[i].find(_HEADER)
    prefix = _prefix(lines, i, lines[i][: max(0, header)])
    own = re.compile(prefix)
    depth, name, text = -1, -1, ""
    notebook = re.match(r"([A-Z]\w+) {4}", lines[i])  # IPython names the class in the header, too
    for k in range(i + 1, len(lines)):
        if not own.match(lines[k]) or (notebook and not lines[k].startswith(notebook[1] + ":")):
            continue
        text = own.sub("", lines[k], count=1)
        indent = len(text) - len(text.lstrip())
        if _HEADER in text:
            break
        if not text.strip():
            continue
        if depth < 0 and text.startswith('File "', indent):
            depth = indent
        elif indent < depth or (depth < 0 and not indent):
            name = k
            if not _RAY.search(text):
                break
            depth = -1  # the frames of the remote error follow
    if name < 0:
        return None
    text = own.sub("", lines[name], count=1).strip()
    if "ChildFailedError" in text:
        return _child_report(lines, i, name)
    kind = Kind.PEER if _PEER.search(text) else Kind.OWN
    if _LAUNCHER.search(text):
        kind = Kind.LAUNCHER
    elif any(_ASIDE.match(line) for line in lines[max(0, i - 2) : i]):
        kind = Kind.ASIDE
    return Error(i, name, _message_end(lines, name, prefix), kind, prefix)


def _child_report(lines: Sequence[str], first: int, name: int) -> Error:
    """Return the error of torchrun about a child, whose report is between two rules: the signal that ended the child
    says more than the name of the error. A traceback in the report is an error by itself."""
    rules = [k for k in range(name, min(name + BOX, len(lines))) if lines[k].startswith("=" * 10)]
    report = range(name, rules[1] + 1 if len(rules) > 1 else name + 1)
    if any(_HEADER in lines[k] for k in report):
        report = range(name, name + 1)
    signals = [k for k in report if _SIGNAL.match(lines[k])]
    return Error(first, max([name, *signals]), report[-1], Kind.LAUNCHER, _LABEL)


def _boxed(lines: Sequence[str], i: int) -> Error:
    """Return the error of a traceback in a box, which is named after the box."""
    end = next((k for k in range(i, min(i + BOX, len(lines))) if _BOX_END.match(lines[k])), i)
    name = next((k for k in range(end + 1, len(lines)) if lines[k].strip()), end)
    return Error(i, name, _message_end(lines, name, ""), Kind.OWN, "")


def _prefix(lines: Sequence[str], i: int, text: str) -> str:
    """Return a pattern of what a process prints before each line of its traceback, such as its rank, given the text
    before the first; empty if the next lines do not have it."""
    exact = "^" + re.escape(text.rstrip()) + " ?"
    for pattern in (exact, re.sub(r"\d+", lambda _: r"\d+", exact)) if text.strip() else ():
        if any(re.match(pattern, line) for line in lines[i + 1 : i + 4]):
            return pattern
    return ""


def _message_end(lines: Sequence[str], name: int, prefix: str) -> int:
    """Return the last line of the message of the error that line `name` names."""
    own, end, count = re.compile(prefix), name, 0
    for k in range(name + 1, len(lines)):
        if not own.match(lines[k]):
            continue
        text = own.sub("", lines[k], count=1)
        if _HEADER in text or _NEXT.match(text) or _is_step(text) or count == MORE:
            break
        if text.strip():
            end, count = k, count + 1
    return end
