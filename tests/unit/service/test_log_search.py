"""Search says what `grep` says, of every line, and ends in time whatever the pattern."""

import random
import subprocess
import tracemalloc
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.support.records import a_job
from tests.support.shelf import Shelf, reader
from tpujob.api import SearchQuery
from tpujob.domain.model import State
from tpujob.errors import BadRequest, Busy
from tpujob.lib.tries import Deadline
from tpujob.service.logs.lines import text_of
from tpujob.service.logs.log import Logs
from tpujob.service.logs.reader import HostLog, LogReader
from tpujob.service.logs.search import LogPattern, Searches, matcher
from tpujob.service.logs.segment_reader import SegmentReader
from tpujob.service.logs.segments import SegmentLists

JOB = replace(a_job(), state=State.SUCCEEDED)

CHAINED = b"""step 1
Traceback (most recent call last):
  File "a.py", line 1, in <module>
ValueError: no

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
KeyError: 'x'
step 2
(worker) Traceback (most recent call last):
RuntimeError: again
  + Exception Group Traceback (most recent call last):
  |   File "b.py", line 3, in <module>
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    | ValueError: 1
    +------------------------------------
""".splitlines()


def noisy(seed: int = 1, lines: int = 9000) -> tuple[Shelf, dict[int, list[bytes]]]:
    """Words of two hosts, in segments; and what each host wrote."""
    chance, shelf, wrote = random.Random(seed), Shelf(), dict[int, list[bytes]]()
    words = [b"loss", b"Loss", b"1.5", b"17", b"nan", b"\x1b[31mred", b"\xff", b"\xc3\xa9t\xc3\xa9"]
    for host in range(2):
        wrote[host] = [b" ".join(chance.choices(words, k=3)) for _ in range(lines)]
        at, first = 1.7e9 + host / 3, 1
        for number in range(1, 10):
            some = wrote[host][first - 1 : first - 1 + lines // 8]
            at = shelf.ship(host, first, some, number=number, at=at, every=0.01) if some else at
            first += len(some)
    return shelf, wrote


def grep(wrote: list[bytes], *options: str) -> int:
    shown = b"".join(f"{text_of(line)}\n".encode() for line in wrote)
    done = subprocess.run(
        ["grep", "-a", "-c", *options], input=shown, capture_output=True,
        env={"LC_ALL": "C.UTF-8" if "-F" in options else "C", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ({"text": "loss"}, ["-F", "loss"]),
        ({"text": "loss", "ignore_case": True}, ["-F", "-i", "loss"]),
        ({"text": "nan 17 loss"}, ["-F", "nan 17 loss"]),
        ({"text": "1."}, ["-F", "1."]),
        ({"text": "été"}, ["-F", "été"]),
        ({"text": "ÉTÉ", "ignore_case": True}, ["-F", "-i", "ÉTÉ"]),
        ({"text": "red loss"}, ["-F", "red loss"]),
        ({"text": "31mred"}, ["-F", "31mred"]),
        ({"text": "^red .* red$", "regexp": True}, ["-E", "^red .* red$"]),
        ({"text": "1700000"}, ["-F", "1700000"]),
        ({"text": "^nan .*17$", "regexp": True}, ["-E", "^nan .*17$"]),
        ({"text": "(loss|17) nan", "regexp": True, "ignore_case": True}, ["-Ei", "(loss|17) nan"]),
    ],
)
def test_the_count_is_that_of_grep(query: SearchQuery, options: list[str]) -> None:
    shelf, wrote = noisy(lines=4000)
    for host in range(2):
        matches = reader(shelf).search(JOB, {**query, "host": host})
        assert matches["matching"] == grep(wrote[host], *options)
        assert matches["complete"]
        assert matches["searched"] == matches["bytes"]
    assert reader(shelf).search(JOB, query)["matching"] == sum(
        grep(lines, *options) for lines in wrote.values()
    )


def walk(logs: Logs, query: SearchQuery) -> list[tuple[int, int]]:
    """Every match, page by page."""
    places = list[tuple[int, int]]()
    matches = logs.search(JOB, query)
    while matches["matches"]:
        assert matches["first"] == len(places) + 1, "n of N counts the matches before"
        places += [(x["host"], x["line"]) for x in matches["matches"]]
        last = matches["matches"][-1]
        nearest = matches["previous"]
        assert (nearest is None) == (matches["first"] == 1)
        place = SearchQuery(of=last["host"], line=last["line"], after=True)
        matches = logs.search(JOB, {**query, **place})
        if matches["previous"]:
            assert (matches["previous"]["host"], matches["previous"]["line"]) == places[-1]
    assert len(places) == matches["matching"]
    return places


@pytest.mark.parametrize(("regexp", "limit"), [(False, 7), (True, 40)])
def test_going_on_from_match_to_match_visits_each_once(regexp: bool, limit: int) -> None:
    shelf, wrote = noisy(lines=2000)
    places = walk(reader(shelf), {"text": "nan nan", "regexp": regexp, "limit": limit})
    expected = {
        (host, n)
        for host, lines in wrote.items()
        for n, x in enumerate(lines, 1)
        if b"nan nan" in x
    }
    assert set(places) == expected
    assert len(places) == len(expected)


def test_a_search_that_was_done_reads_a_few_segments_for_the_next_match() -> None:
    shelf, _ = noisy()
    logs = reader(shelf)
    logs.search(JOB, {"text": "nan"})
    before = shelf.read
    logs.search(JOB, {"text": "nan", "of": 0, "line": 4000, "limit": 2})
    whole = sum(map(len, shelf.objects.values()))
    assert shelf.read - before < whole * 2 / 3


def test_a_log_that_grows_is_searched_to_its_new_end() -> None:
    shelf = Shelf()
    shelf.ship(0, 1, [b"one needle"], number=1)
    logs, job = reader(shelf), a_job()
    assert logs.search(job, {"text": "needle"})["matching"] == 1
    shelf.write(0, (1.7e9 + 1, "another needle"))
    assert logs.search(job, {"text": "needle"})["matching"] == 2


def test_a_traceback_is_one_stop_with_all_that_it_tells() -> None:
    shelf = Shelf()
    shelf.ship(0, 1, CHAINED, number=1)
    matches = reader(shelf).search(JOB, {"traceback": True})
    assert [x["line"] for x in matches["matches"]] == [2, 12, 14]
    assert matches["matching"] == 3


@pytest.mark.parametrize("pattern", [r"(x+x+)+y", r"(\w+\s?)+$!"])
def test_a_repeat_inside_a_repeat_takes_no_longer(pattern: str) -> None:
    shelf = Shelf()
    shelf.ship(0, 1, [b"x" * 500_000 + b"!"], number=1)
    assert not reader(shelf).search(JOB, {"text": pattern, "regexp": True})["matches"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"text": "(", "regexp": True}, "is not a pattern"),
        ({"text": "(?<=a+)b", "regexp": True}, "invalid perl operator"),
        ({"text": ""}, "needs a text"),
        ({}, "needs a text"),
        ({"text": "x", "traceback": True}, "not for both"),
        ({"text": "x" * 1001}, "1,000 characters"),
    ],
)
def test_an_invalid_search_is_refused_with_a_reason(query: SearchQuery, reason: str) -> None:
    shelf, _ = noisy(lines=10)
    with pytest.raises(BadRequest, match=reason):
        reader(shelf).search(JOB, query)


def test_a_search_that_ran_out_of_time_can_go_on() -> None:
    shelf, wrote = noisy()
    first = reader(shelf, search=0).search(JOB, {"text": "nan"})
    assert not first["complete"]
    assert first["searched"] < first["bytes"]
    assert reader(shelf).search(JOB, {"text": "nan"})["matching"] == sum(
        grep(lines, "-F", "nan") for lines in wrote.values()
    )


def test_what_is_remembered_of_searches_does_not_grow_with_their_texts() -> None:
    shelf = Shelf()
    shelf.ship(0, 1, [b"x"], number=1)
    logs = reader(shelf)
    tracemalloc.start()
    try:
        for number in range(300):
            logs.search(JOB, {"text": f"{number:03}" + "\U0001f4a5" * 900})
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 300 * 1000, "a count is remembered, and not what was looked for"


def test_a_search_ends_in_time_also_within_what_was_fetched_in_one_go() -> None:
    shelf, looked = Shelf(), 0
    for number in range(1, 9):
        shelf.ship(0, number, [b"x"], number=number)

    class Slow:
        def lines(self, data: bytes) -> list[int]:
            nonlocal looked
            looked += 1
            return [0]

    segments = SegmentReader(shelf)  # pyright: ignore[reportArgumentType]
    until, time = Deadline(10), Deadline(2, lambda: looked)
    hosts = SegmentLists(shelf).find(JOB, 2, 0, until)  # pyright: ignore[reportArgumentType]
    log = LogReader({0: HostLog(0, hosts[0], segments, until)}, segments)
    counted = Searches(segments).count(log, LogPattern("x"), Slow(), until, time)  # pyright: ignore
    assert looked == 2, "the piece that was begun is the last one"
    assert not counted.complete


def test_marks_are_at_the_match_also_behind_a_letter_whose_small_form_is_longer() -> None:
    by = matcher(LogPattern("loss", ignore_case=True))
    assert by.spans(["İ Loss, loss"]) == [[(2, 6), (8, 12)]]


def test_a_search_beyond_the_limit_is_refused() -> None:
    shelf, _ = noisy(lines=10)
    logs = reader(shelf, search=0)
    with ExitStack() as busy:
        for _ in range(4):
            busy.enter_context(logs._seat())  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(Busy, match="more than 4 searches at once"):
            logs.search(JOB, {"text": "nan"})
    logs.search(JOB, {"text": "nan"})
