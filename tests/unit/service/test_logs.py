"""Many hosts' segments read as one log: nothing twice, nothing lost, in order of time."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.support.records import a_job
from tests.support.shelf import Shelf, reader
from tpujob.api import LogLine, LogPage
from tpujob.domain.model import Job, State
from tpujob.errors import BadRequest, NotFound, Transient
from tpujob.service.logs import log as logs


@dataclass
class Follower:
    """Somebody who reads page after page."""

    shelf: Shelf
    job: Job
    asked: Mapping[str, int | None] = field(default_factory=dict)
    cursor: str = ""
    since: float | None = None

    def page(self, **options: int | None) -> LogPage:
        query = {"host": None, "attempt": None, "tail": None, **self.asked, **options}
        page = reader(self.shelf).page(
            self.job,
            host=query["host"],
            attempt=query["attempt"],
            cursor=self.cursor,
            tail=query["tail"],
            since=self.since,
        )
        self.cursor = page["cursor"]
        return page

    def lines(self, **options: int | None) -> list[LogLine]:
        """Everything there is, page by page."""
        collected: list[LogLine] = []
        while page := self.page(**options)["lines"]:
            collected += page
        return collected

    def texts(self, **options: int | None) -> list[str]:
        return [line["text"] for line in self.lines(**options)]


def test_hosts_are_merged_by_time() -> None:
    shelf = Shelf()
    shelf.write(0, (1.0, "a"), (3.0, "c"))
    shelf.write(0, (5.0, "e"), segment=2)
    shelf.write(1, (2.0, "b"), (4.0, "d"))
    page = Follower(shelf, a_job()).page()
    assert [line["text"] for line in page["lines"]] == list("abcde")
    assert page["lines"][1] == {"host": 1, "at": "1970-01-01T00:00:02.000Z", "text": "b", "line": 1}
    assert not page["done"], "the job goes on"


def test_a_follower_gets_each_line_once_while_segments_grow() -> None:
    shelf, follower = Shelf(), Follower(Shelf(), a_job())
    follower.shelf = shelf
    assert follower.texts() == []
    shelf.write(0, (1.0, "a"))
    assert follower.texts() == ["a"]
    shelf.write(0, (2.0, "b"))
    shelf.write(1, (2.5, "c"))
    assert follower.texts() == ["b", "c"]
    shelf.write(0, (3.0, "d"), segment=2)
    shelf.write(0, (4.0, "e"), segment=4)
    assert follower.texts() == ["d", "e"]


def test_following_goes_on_to_the_next_attempt() -> None:
    shelf, job = Shelf(), a_job()
    shelf.write(0, (1.0, "first"), attempt=1)
    follower = Follower(shelf, replace(job, attempts=job.attempts[:1]))
    assert follower.texts() == ["first"]
    follower.job = job
    assert follower.texts() == []
    shelf.write(1, (2.0, "second"), attempt=2)
    assert follower.texts() == ["second"]
    assert Follower(shelf, job).texts() == ["second"], "a new reader begins with the newest"
    assert Follower(shelf, job, {"attempt": 1}).texts() == ["first"]


def test_the_last_page_says_that_nothing_more_will_come() -> None:
    shelf, job = Shelf(), a_job()
    shelf.write(0, (1.0, "x"), attempt=1)
    shelf.write(0, (2.0, "y"), attempt=2)
    final = replace(job, state=State.SUCCEEDED)
    assert Follower(shelf, final).page()["done"]
    assert not Follower(shelf, job).page()["done"]
    assert Follower(shelf, job).page(attempt=1)["done"]
    assert not Follower(shelf, job).page(attempt=2)["done"]
    assert Follower(shelf, replace(final, attempts=())).page() == LogPage(
        lines=[], cursor="", done=True, attempt=0
    )


def test_tail_gives_the_last_lines_and_the_cursor_behind_them() -> None:
    shelf = Shelf()
    for segment in range(1, 4):
        shelf.write(
            0, *((segment * 100.0 + i, f"{segment}.{i}") for i in range(5)), segment=segment
        )
    shelf.write(1, (302.5, "other"))
    follower = Follower(shelf, a_job())
    page = follower.page(tail=4)
    assert [line["text"] for line in page["lines"]] == ["3.2", "other", "3.3", "3.4"]
    assert follower.texts() == []
    shelf.write(1, (400.0, "new"))
    assert follower.texts() == ["new"]
    quiet = Follower(shelf, a_job())
    assert quiet.page(tail=0)["lines"] == []
    shelf.write(0, (500.0, "newest"), segment=3)
    assert quiet.texts() == ["newest"]
    assert len(Follower(shelf, a_job()).page(tail=1000)["lines"]) == 18


def test_lines_since_a_time_begin_in_the_attempt_that_ran_then_and_go_on() -> None:
    """Attempt 1 began at 0, attempt 2 at 9."""
    shelf = Shelf()
    shelf.write(0, (1.0, "a"), (2.0, "b"), (3.0, "d"), attempt=1)
    shelf.write(1, (2.5, "c"), (8.0, "e"), attempt=1)
    shelf.write(0, (10.0, "f"), (11.0, "g"), attempt=2)
    for since, texts in ((0, "abcdefg"), (2, "bcdefg"), (2.5, "cdefg"), (8.5, "fg"), (11, "g")):
        assert "".join(Follower(shelf, a_job(), since=since).texts()) == texts, since
    later = Follower(shelf, a_job(), since=12)
    assert later.texts() == []
    shelf.write(0, (12.5, "h"), attempt=2)
    assert later.texts() == ["h"]
    assert Follower(shelf, a_job(), {"attempt": 1, "host": 1}, since=2.6).texts() == ["e"]
    assert Follower(shelf, a_job(), {"attempt": 2}, since=0).texts() == ["f", "g", "h"]
    with pytest.raises(BadRequest, match="do not go together"):
        Follower(shelf, a_job(), since=1).page(tail=1)


def test_a_large_log_comes_in_bounded_pages_in_order() -> None:
    shelf, chance = Shelf(), random.Random(7)
    expected: list[tuple[float, str]] = []
    for host in range(2):
        at = 0.0
        for segment in range(1, 6):
            lines: list[tuple[float, str]] = []
            for _ in range(3000):
                at += chance.random()
                lines.append((round(at, 3), f"{host} {at} " + "x" * chance.randrange(100)))
            shelf.write(host, *lines, segment=segment)
            expected += lines
    follower, collected, pages = Follower(shelf, a_job()), [], 0
    while page := follower.page()["lines"]:
        pages += 1
        collected += page
        assert len(page) <= logs.PAGE_LINES
        assert sum(len(line["text"]) for line in page) <= logs.PAGE_BYTES
    assert [line["text"] for line in collected] == [
        text for _, text in sorted(expected, key=lambda w: w[0])
    ]
    assert pages < 15
    assert shelf.most_read <= logs.PAGE_BYTES


def test_the_longest_line_passes() -> None:
    shelf = Shelf()
    shelf.write(0, (1.0, "a" * 65536), (2.0, "b" * 65536))
    follower = Follower(shelf, a_job())
    assert [len(text) for text in follower.texts()] == [65536, 65536]
    assert [text[0] for text in Follower(shelf, a_job()).texts(tail=1)] == ["b"]


def test_many_long_lines_make_more_pages_not_larger_ones() -> None:
    shelf, job = Shelf(), a_job()
    wide = replace(job, slices=tuple(replace(s, type="v4-512") for s in job.slices))
    for host in range(64):
        shelf.write(host, *((float(i), "x" * 60_000) for i in range(2)))
    follower, sizes = Follower(shelf, wide), list[int]()
    while page := follower.page()["lines"]:
        sizes.append(sum(len(line["text"]) for line in page))
    assert sum(sizes) == 64 * 2 * 60_000
    assert max(sizes) <= logs.PAGE_BYTES


def test_a_slow_clock_does_not_reorder_a_host() -> None:
    shelf = Shelf()
    shelf.write(0, (10.0, "a"), (4.0, "b"), (11.0, "c"))
    shelf.write(1, (5.0, "x"))
    assert Follower(shelf, a_job()).texts() == ["x", "a", "b", "c"]


def test_many_hosts_have_a_short_cursor_and_none_is_forgotten() -> None:
    shelf, job = Shelf(), a_job()
    wide = replace(job, slices=tuple(replace(s, type="v4-512") for s in job.slices))
    for host in range(64):
        shelf.write(host, (float(host), f"from {host}"))
    follower = Follower(shelf, wide)
    assert follower.texts() == [f"from {host}" for host in range(64)]
    assert len(follower.cursor) < 1000
    shelf.write(63, (99.0, "more"))
    assert follower.texts() == ["more"]


@pytest.mark.parametrize(
    "cursor", ["x", "2~", "2~0", "9", "0", "2~0.1.5", "2~0.-1", "2~0.1\n", "1" * 50, "2~0.1.5.2"]
)
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(BadRequest, match="cursor") as refused:
        Follower(Shelf(), a_job(), cursor=cursor).page()
    assert refused.value.hint == "Begin without a cursor."


def test_an_unknown_host_or_attempt_is_refused() -> None:
    follower = Follower(Shelf(), a_job())
    with pytest.raises(NotFound, match="2 attempts, no attempt 3"):
        follower.page(attempt=3)
    with pytest.raises(BadRequest, match="tail"):
        follower.page(tail=-1)


def test_reading_ends_by_its_deadline() -> None:
    with pytest.raises(Transient):
        reader(Shelf(), answer=0).page(a_job())


def test_blocks_of_many_hosts_have_the_lines_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BLOCK_BYTES", 40_000)
    chance = random.Random(7)
    shelf, at = Shelf(), 1_700_000_000.0
    for host in range(2):
        first, number, when = 1, 1, at
        while first < 2_000:
            lines = [b"%d of %d" % (first + i, host) for i in range(chance.randrange(1, 400))]
            when = shelf.ship(host, first, lines, number=number, at=when, every=chance.random())
            first, number = first + len(lines), number + 1
    data, cursor, has_more = b"", "", True
    while has_more:
        block = reader(shelf).block(a_job(), cursor=cursor)
        data, cursor, has_more = data + block.data, block.cursor, block.more
    pages = Follower(shelf, a_job()).lines()
    assert [line.split(b" ", 2)[::2] for line in data.splitlines()] == [
        [b"%d" % line["host"], line["text"].encode()] for line in pages
    ]
    shelf.write(1, (at + 5_000, "late"), segment=9_000)
    assert reader(shelf).block(a_job(), cursor=cursor).data == b"1 1700005000.000 late\n"


def test_pieces_that_are_gone_or_have_no_line_end_are_passed() -> None:
    shelf = Shelf()
    for number in range(1, 200):
        shelf.ship(0, 10 * number, [b"x"] * 10, number=number)
        (*_, path) = shelf.objects
        shelf.objects[path] = b"x" * 200
    shelf.write(0, (1.0, "at last"), segment=1_200)
    shelf.facts[next(reversed(shelf.objects))]["line"] = "5000"
    assert Follower(shelf, a_job(), {"host": 0}).texts() == ["at last"]


def test_the_pieces_of_a_log_are_listed_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("segments", "notes"):
        monkeypatch.setattr(f"tpujob.service.logs.{name}.MAX_SEGMENTS", 3)
    shelf = Shelf()
    for number in range(1, 6):
        for host in (0, 1):
            shelf.ship(host, number, [b"line %d" % number], number=number)
    window = reader(shelf).window(a_job(), {})
    assert window["total"] == 3
    assert any("Only the first 3 pieces" in note for note in window["notes"])
    assert len(Follower(shelf, a_job(), {"host": 1}).texts()) == 5, "of one host it is read whole"
