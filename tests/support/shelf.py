"""Logs without agents: segments as agents write them, in memory, and a reader of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpujob.errors import NotFound
from tpujob.ports import Blob
from tpujob.protocol import paths
from tpujob.protocol.segment import SegmentFacts, to_metadata
from tpujob.service.logs import Logs

WORKDIR = "gs://shed/jobs/000042"


@dataclass
class Shelf:
    """The part of the port Blobs that a reader needs, over a dictionary."""

    objects: dict[str, bytes] = field(default_factory=dict)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    most_read: int = 0  #: bytes in one go
    read: int = 0  #: bytes in all

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        names = sorted(p for p in self.objects if p.startswith(prefix))
        return [
            Blob(p, len(self.objects[p]), self.generations.get(p, 1), 0.0, self.facts.get(p, {}))
            for p in names[:most]
        ]

    def put(self, path: str, data: bytes, *, timeout: float) -> None:
        self.objects[path] = data
        self.generations[path] = self.generations.get(path, 0) + 1

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        if path not in self.objects:
            raise NotFound(path)
        data = self.objects[path][start:end]
        self.most_read = max(self.most_read, len(data))
        self.read += len(data)
        return data

    def write(
        self, host: int, *lines: tuple[float, str], segment: int = 1, attempt: int = 2
    ) -> None:
        """Append to a segment; the host's lines are numbered in the order of these calls."""
        text = "".join(f"{at:.3f} {line}\n" for at, line in lines)
        path = self.append(host, text.encode(), segment=segment, attempt=attempt)
        folder = paths.log_prefix(WORKDIR, attempt, host)
        wrote = sum(data.count(b"\n") for p, data in self.objects.items() if p.startswith(folder))
        held = self.objects[path].count(b"\n")
        begin = float(self.objects[path].split(b" ", 1)[0])
        self.facts[path] = to_metadata(SegmentFacts(wrote - held + 1, held, begin))

    def append(self, host: int, data: bytes, *, segment: int = 1, attempt: int = 2) -> str:
        path = paths.log_path(WORKDIR, attempt, host, segment)
        self.objects[path] = self.objects.get(path, b"") + data
        self.generations[path] = self.generations.get(path, 0) + 1
        return path

    def ship(
        self, host: int, first: int, lines: list[bytes], *, number: int, attempt: int = 2,
        at: float = 1_700_000_000.0, every: float = 0.001,
    ) -> float:  # fmt: skip
        """Store a segment as agents write it, whose first line has that number; return the time of the next line."""
        text = b"".join(b"%.3f %b\n" % (at + i * every, line) for i, line in enumerate(lines))
        path = self.append(host, text, segment=number, attempt=attempt)
        self.facts[path] = to_metadata(SegmentFacts(first, len(lines), at))
        return at + len(lines) * every


def reader(shelf: Shelf, *, answer: float = 10, search: float = 6) -> Logs:
    """Return a reader for which any log may have grown a moment ago."""
    return Logs(shelf, fresh=0, answer=answer, search=search)  # pyright: ignore[reportArgumentType]
