"""What is known of a log is neither listed nor read again, and what is in order is what all of it would be at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from tests.support.old_logs import metadata_of_pieces
from tests.support.records import a_job
from tests.support.shelf import WORKDIR, Shelf, at_once
from tpujob.domain.model import Endpoint, Job, State
from tpujob.ports import Blob
from tpujob.protocol import paths, segment
from tpujob.protocol.segment import SegmentFacts
from tpujob.service.logs import Logs
from tpujob.service.logs.bucket import lists, stored
from tpujob.service.logs.bucket.lists import Lists
from tpujob.service.logs.bucket.pieces import Pieces, Told, Until
from tpujob.service.logs.bucket.shared import Shared
from tpujob.service.logs.bucket.stored import SHARED, Segment
from tpujob.service.logs.cursor import Place

HOSTS = 256
LINES, LINE = 60, 41  #: of a host in an object; bytes of each


@dataclass
class Work:
    """What readers have been doing since somebody asked."""

    listed: list[int] = field(default_factory=list)  #: objects, list by list
    read: int = 0  #: objects whose metadata was read
    taken: int = 0  #: pieces that became segments

    def since(self) -> Work:
        was = replace(self)
        self.listed, self.read, self.taken = [], 0, 0
        return was


@dataclass
class LargeSlice(Shelf):
    """One object of all hosts every five minutes; their bytes are made when somebody reads them."""

    work: Work = field(default_factory=Work)

    def ship_all(self, number: int, *, by: int = 0, attempt: int = 2) -> None:
        path = paths.shared_log_path(WORKDIR, attempt, by, number)
        at = 1_700_000_000.0 + 300 * number
        facts = SegmentFacts(1 + (number - 1) * LINES, LINES, at, open=True)
        self.facts[path] = metadata_of_pieces([(h, facts, LINES * LINE) for h in range(HOSTS)])
        self.objects[path] = b""

    def list(
        self, prefix: str, *, after: str = "", most: int | None = None, timeout: float
    ) -> list[Blob]:
        found = super().list(prefix, after=after, most=most, timeout=timeout)
        self.work.listed.append(len(found))
        return [replace(blob, size=HOSTS * LINES * LINE) for blob in found]

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        number = int(path[-len("00000.tpujob-log") :][:5])
        line = b"%d.000 ".ljust(LINE - 5, b"x") % (1_700_000_000 + 300 * number) + b"\n"
        assert end is not None
        return line * ((end - start) // LINE)


def a_large_job() -> Job:
    job = a_job()
    hosts = tuple(Endpoint(h, f"10.0.{h // 250}.{h % 250}") for h in range(HOSTS))
    slices = tuple(replace(s, type="v4-2048", endpoints=hosts) for s in job.slices)
    return replace(job, state=State.RUNNING, slices=slices)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    counted = Work()
    read, facts = segment.read_columns, Shared.facts

    def count_read(metadata: Mapping[str, str], size: int) -> Any:
        counted.read += 1
        return read(metadata, size)

    def count_taken(table: Shared, piece: int) -> SegmentFacts:
        counted.taken += 1
        return facts(table, piece)

    monkeypatch.setattr(segment, "read_columns", count_read)
    monkeypatch.setattr(Shared, "facts", count_taken)
    return counted


def test_a_look_at_a_long_log_of_many_hosts_costs_what_is_new_of_it(work: Work) -> None:
    shelf, objects = LargeSlice(work=work), 2_000
    for number in range(1, objects + 1):
        shelf.ship_all(number)
    logs, job = Logs(shelf, fresh=0, answer=300), a_large_job()  # pyright: ignore[reportArgumentType]
    window = logs.window(job, {"lines": 20})
    assert window["total"] == objects * HOSTS * LINES
    first = work.since()
    assert (first.listed, first.read) == ([objects], objects)
    assert first.taken < 20 * HOSTS

    page = logs.page(job, tail=20)
    assert len(page["lines"]) == 20
    tail = work.since()
    assert (tail.listed, tail.read) == ([0, 0], 0), "of hosts, and behind the newest of many"
    assert tail.taken < 20 * HOSTS

    assert not logs.page(job, cursor=page["cursor"])["lines"]
    poll = work.since()
    assert (poll.listed, poll.read, poll.taken) == ([0, 0], 0, 0)

    shelf.ship_all(objects + 1)
    page = logs.page(job, cursor=page["cursor"])
    assert len(page["lines"]) == 5_000
    poll = work.since()
    assert (poll.listed, poll.read) == ([0, 1], 1)
    assert poll.taken < 5 * HOSTS

    assert len(logs.page(job, host=7, tail=3)["lines"]) == 3
    one = work.since()
    assert (one.listed, one.read) == ([0, 0], 0)
    assert one.taken < 10


def test_a_short_log_is_listed_at_once(work: Work) -> None:
    shelf = LargeSlice(work=work)
    for number in range(1, 4):
        shelf.ship_all(number)
    logs = Logs(shelf, fresh=0)  # pyright: ignore[reportArgumentType]
    for _ in range(3):
        assert len(logs.page(a_large_job(), tail=5)["lines"]) == 5
    assert (work.listed, work.read) == ([3, 3, 3], 3)


def test_what_is_kept_of_logs_is_bounded_by_pieces(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shared", "pieces"):
        monkeypatch.setattr(f"tpujob.service.logs.bucket.{name}.MOST_PIECES", 5 * HOSTS)
    shelf = LargeSlice(work=work)
    for attempt in (1, 2):
        for number in range(1, 4):
            shelf.ship_all(number, attempt=attempt)
    logs = Logs(shelf, fresh=0)  # pyright: ignore[reportArgumentType]

    def read(attempt: int) -> int:
        work.since()
        assert logs.page(a_large_job(), attempt=attempt, tail=5)["lines"]
        return work.read

    assert [read(1), read(1), read(2), read(2), read(1)] == [3, 0, 3, 0, 3]
    for number in range(4, 9):
        shelf.ship_all(number, attempt=1)
    assert logs.window(a_large_job(), {"attempt": 1})["total"] == 5 * HOSTS * LINES


def test_what_one_host_shipped_both_ways_has_no_gap_though_the_lists_are_of_different_ages() -> (
    None
):
    shelf, job = Shelf(), a_large_job()

    def lines(first: int, many: bool) -> None:
        text = b"".join(b"1700000000.000 line %d\n" % n for n in range(first, first + 5))
        if many:
            shelf.ship_together([(1, first, text)], by=0, number=first)
        else:
            shelf.ship(1, first, text.replace(b"1700000000.000 ", b"").splitlines(), number=first)

    lines(1, many=False)
    pieces = Pieces(shelf)  # pyright: ignore[reportArgumentType]
    ask = partial(pieces.segments, job, 2, 1, Until(10))
    told = Told({1: 5}, time.monotonic(), whole=True)
    assert [s.last for s in ask({}, told)[1]] == [5], "both lists are known from now on"
    lines(6, many=True)
    lines(11, many=False)
    behind = {1: Place(segment=1, lines=5)}  # its own objects are listed from another one on
    told = Told({1: 15}, time.monotonic(), whole=True)
    assert [s.last for s in ask(behind, told)[1]] == [10, 15]


def plainly(found: Iterable[Blob]) -> dict[int, list[Segment]]:
    """The segments of each host, of all its pieces at once."""
    by_host: dict[int, list[Segment]] = {}
    for blob in found:
        if paths.is_shared_log(WORKDIR, 2, blob.path):
            for host, line, lines, at, more, offset, size in zip(
                *(segment.read_columns(blob.metadata, blob.size) or ()), strict=True
            ):
                number, facts = SHARED + line, SegmentFacts(line, lines, at, bool(more))
                one = Segment(host, number, blob.path, size, blob.generation, facts, offset=offset)
                by_host.setdefault(host, []).append(one)
    for host, each in stored.own(WORKDIR, 2, found).items():
        by_host[host] = [*each, *by_host.get(host, [])]
    return {host: in_order(each) for host, each in by_host.items() if in_order(each)}


def in_order(found: list[Segment]) -> list[Segment]:
    if not all(one.facts for one in found):
        return sorted((s for s in found if s.number < SHARED), key=lambda s: s.number)
    kept: list[Segment] = []
    for one in sorted(found, key=lambda s: (s.facts.line if s.facts else 0, -s.last)):
        if one.last > (kept[-1].last if kept else 0):
            kept.append(one)
    for one in found:
        ends = one.facts and not one.facts.lines and not one.facts.open
        if kept and kept[-1].facts and ends and one.last >= kept[-1].last:
            kept[-1] = replace(kept[-1], facts=kept[-1].facts._replace(open=False))
    return kept


def some_facts(chance: random.Random, line: int) -> SegmentFacts:
    """Often what comes next; now and then something doubled, missing, closed, or that makes no sense."""
    begin = line if chance.random() < 0.8 else max(1, line + chance.randint(-8, 4))
    lines = chance.choice([0, 1, 2, 3, 5]) if chance.random() < 0.4 else 3
    return SegmentFacts(begin, lines, 1.7e9 + begin, open=chance.random() < 0.5)


@pytest.mark.parametrize("seed", range(40))
def test_what_comes_bit_by_bit_is_in_the_order_of_all_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(lists, "PAGE", chance.choice([0, 2, 1000]))
    monkeypatch.setattr(lists, "WHOLE", chance.choice([-1.0, 600.0]))
    shelf, known, hosts = Shelf(), Lists(WORKDIR, 2), range(4)
    ask = partial(_ask, shelf)
    folder, many = paths.attempt_folder(WORKDIR, 2) + "/", paths.shared_log_prefix(WORKDIR, 2)
    line, number, own_number = dict.fromkeys(hosts, 1), dict.fromkeys(hosts, 0), 0
    for _ in range(25):
        for _ in range(chance.randint(0, 3)):
            rows: list[tuple[int, SegmentFacts, int]] = []
            for host in chance.sample(hosts, chance.randint(1, 4)) + chance.choices(hosts, k=1):
                facts = some_facts(chance, line[host])
                line[host] = max(line[host], facts.line + facts.lines)
                rows.append((host, facts, 3 * facts.lines))
            by = 0 if chance.random() < 0.7 else chance.choice(hosts)
            number[by] += 1
            path = paths.shared_log_path(WORKDIR, 2, by, number[by])
            shelf.put(path, b"x" * sum(size for _, _, size in rows), timeout=1)
            shelf.facts[path] = metadata_of_pieces(rows) if chance.random() < 0.95 else {"at": "?"}
        if chance.random() < 0.3:
            host, own_number = chance.choice(hosts), own_number + 1
            facts = some_facts(chance, line[host])
            line[host] = max(line[host], facts.line + facts.lines)
            path = shelf.append(host, b"x" * 3 * facts.lines, segment=own_number)
            if seed % 8 or host:
                shelf.facts[path] = segment.written(facts)
        own = [path for path in shelf.objects if "/log-" in path]
        if own and chance.random() < 0.1:
            del shelf.objects[chance.choice(own)]
        wanted = plainly(shelf.list(folder, timeout=1))
        listed = known.look((folder, "", False), ask, 20_000)
        assert listed.whole
        found = {host: each for host in listed.hosts if (each := listed.of(host))}
        assert {host: list(each) for host, each in found.items()} == wanted
        assert {h: list(s) for h, s in _at_once(shelf, folder).items() if s} == wanted
        rows_alone = known.look((many, "", False), ask, 20_000)
        for host, each in found.items():
            at = chance.randint(0, line[host])
            after = [s for s in wanted[host] if (s.last > at if s.facts else s.number >= 3)]
            assert list(stored.after(each, 3, at)) == after
            assert each[-1] == wanted[host][-1]
            assert each.size == sum(s.size for s in wanted[host])
            if each.numbered:
                numbers = [s.facts and s.facts.line for s in wanted[host]]
                assert list(each.first_lines()) == numbers
                assert list(each.counts()) == [s.facts and s.facts.lines for s in wanted[host]]
            if host not in listed.own:
                assert list(rows_alone.of(host)) == wanted[host]


def test_what_was_removed_or_written_again_is_seen_by_the_next_whole_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, known = Shelf(), Lists(WORKDIR, 2)
    many, ask = paths.shared_log_prefix(WORKDIR, 2), partial(_ask, shelf)

    def lines() -> list[int]:
        listed = known.look((many, "", False), ask, 20_000)
        return list(listed.of(3).first_lines())

    for number in (1, 2, 3):
        shelf.ship_together([(3, number, b"1.000 line\n")], by=0, number=number)
    assert lines() == [1, 2, 3]
    shelf.objects.pop(paths.shared_log_path(WORKDIR, 2, 0, 1))
    shelf.ship_together([(3, 4, b"1.000 line\n")], by=1, number=1)
    assert lines() == [1, 2, 3, 4], "nobody but a rule of the bucket removes any"
    monkeypatch.setattr(lists, "WHOLE", -1.0)
    assert lines() == [2, 3, 4]
    monkeypatch.undo()
    shelf.put(paths.shared_log_path(WORKDIR, 2, 1, 1), b"", timeout=1)
    shelf.generations[paths.shared_log_path(WORKDIR, 2, 1, 1)] = 7
    assert lines() == [2, 3], "behind the newest of host 0 all is listed"


def _ask(shelf: Shelf, prefix: str, after: str) -> list[Blob]:
    return shelf.list(prefix, after=after, timeout=1)


def _at_once(shelf: Shelf, folder: str) -> Mapping[int, Iterable[Segment]]:
    return at_once(WORKDIR, 2, shelf.list(folder, timeout=1))
