"""The ends of real logs in `ends/`, and the path of such an end from the program's pipe to its cause.

The lines of the errors are those of the libraries; the lines around them were written for the tests. The ends of
`threads.txt` are the first usable ones that a search of public threads gives, labelled before they were judged; those
of `guards.txt` have words of a cause that is not theirs. An entry begins with `== NAME`; its head ends at `---`. In the
log `\\e` and `\\r` stand for these characters, and a line may be one of: `@steps A B` (steps with a loss), `@sleep S`
(seconds pass), `@kernel N` (the kernel kills processes).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tests.support.records import host
from tpujob.agent.upload.evidence import pick_lines
from tpujob.agent.upload.log import Log
from tpujob.agent.upload.redact import Redactor
from tpujob.domain.host.reports import read_evidence
from tpujob.domain.model import Cause
from tpujob.domain.observations import HostReport


@dataclass(frozen=True)
class LogEnd:
    name: str
    source: str  #: the project and the issue with these errors, or whose text they are
    exit: int
    cause: Cause  #: the true one
    log: tuple[str, ...]
    echo: bool | None = (
        None  #: whether it shows nothing but the loss of another host; None: not judged
    )
    shown: str = ""  #: a part of the line that the owner must see
    message: str = ""  #: a part of the sentence that everybody sees


def all_ends() -> list[LogEnd]:
    folder = Path(__file__).parent / "ends"
    return [end for path in sorted(folder.glob("*.txt")) for end in _read(path.read_text("utf-8"))]


def _read(text: str) -> Iterator[LogEnd]:
    for entry in text.split("\n== "):
        head, _, log = entry.removeprefix("== ").partition("\n---\n")
        name, *fields = head.splitlines()
        known = dict(field.split(": ", 1) for field in fields)
        yield LogEnd(
            name=name,
            source=known.pop("source"),
            exit=int(known.pop("exit")),
            cause=Cause(known.pop("cause")),
            log=tuple(log.strip("\n").split("\n")),
            echo={"yes": True, "no": False, None: None}[known.pop("echo", None)],
            **known,
        )


class NoStorage:
    """A storage that takes everything and keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def report_of(end: LogEnd, folder: Path, number: int = 0) -> HostReport:
    """Return what a backend reads of a host whose program has this log: through the agent's pipe, its choice of lines
    and the body of its report."""
    now, kills = 1e9, 0
    log = Log(
        cast(Any, NoStorage()), str, str(folder / "begun"), 1 << 20, Redactor({}), 60.0, lambda: now
    )
    for kind, text in _parts(end.log):
        if kind == "text":
            _print(log, text)
        elif kind == "@sleep":
            now += float(text)
        else:
            kills += int(text)
            log.note(f"the kernel killed for want of memory, processes: {kills}")
    evidence = read_evidence(pick_lines(log.tail(), now))
    log.finish(10)
    return host(number, end.exit, evidence=evidence, kernel_kills=kills)


def _print(log: Log, text: str) -> None:
    reader, writer = os.pipe()
    pump = log.read_pipe(reader)
    with open(writer, "wb") as pipe:
        pipe.write(text.replace("\\e", "\x1b").replace("\\r", "\r").encode())
    pump.join()


def _parts(lines: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    text = ""
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "@steps":
            first, last = map(int, rest.split())
            steps = [f"step {n} loss {2 / (n + 1):.4f}" for n in range(first, last + 1)]
            text += "\n".join(steps) + "\n"
        elif word in ("@sleep", "@kernel"):
            yield "text", text
            yield word, rest
            text = ""
        else:
            text += line + "\n"
    if text:
        yield "text", text
