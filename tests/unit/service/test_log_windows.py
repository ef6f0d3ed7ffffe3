"""Any line of a long log, by its number, its time or its part of the whole: in one answer of bounded size."""

import json
import random
from dataclasses import replace
from typing import Literal

import pytest

from tests.support.records import a_job
from tests.support.shelf import Shelf, reader
from tpujob.api import LogGap, LogWindow, WindowQuery
from tpujob.domain.model import State
from tpujob.errors import BadRequest, NotFound
from tpujob.service.logs import window
from tpujob.service.logs.log import Logs

JOB = replace(a_job(), state=State.SUCCEEDED)


def filled(lines: int = 30_000, hosts: int = 2) -> Shelf:
    """Two hosts that write in turn, in segments of 4,000 lines."""
    shelf = Shelf()
    for host in range(hosts):
        for number, first in enumerate(range(1, lines + 1, 4000), 1):
            some = [b"%d of %d" % (n, host) for n in range(first, min(first + 4000, lines + 1))]
            at = 1.7e9 + first + host / 2
            shelf.ship(host, first, some, number=number, at=at, every=1)
    return shelf


@pytest.fixture(scope="module")
def whole() -> Shelf:
    return filled()


def seen(answer: LogWindow) -> list[tuple[int, int]]:
    return [(line["host"], line["line"]) for line in answer["lines"]]


@pytest.mark.parametrize("number", [1, 999, 1000, 1001, 4000, 4001, 17_003, 29_999, 30_000])
def test_any_line_is_in_its_window_under_its_number(number: int, whole: Shelf) -> None:
    for query in (WindowQuery(host=1, line=number), WindowQuery(of=1, line=number)):
        answer = reader(whole).window(JOB, query)
        text = next(x["text"] for x in answer["lines"] if (x["host"], x["line"]) == (1, number))
        assert text == f"{number} of 1"
        assert len(json.dumps(answer)) <= 64 * 1024
        assert answer["total"] == (30_000 if "host" in query else 60_000)


def test_a_window_far_inside_is_found_without_reading_the_log() -> None:
    shelf = filled()
    logs = reader(shelf)
    logs.window(JOB, {"host": 0, "line": 15_000})
    whole = sum(map(len, shelf.objects.values()))
    assert shelf.read < whole / 6, "one segment is read for its index, and a part of it for lines"
    before = shelf.read
    logs.window(JOB, {"host": 0, "line": 15_100})
    assert shelf.read - before < 100_000, "later windows read a few thousand lines"


def walk(logs: Logs, query: WindowQuery, side: Literal["after", "before"]) -> list[tuple[int, int]]:
    """Return the lines of all windows from that place on, in order of time."""
    places = list[tuple[int, int]]()
    while (answer := logs.window(JOB, {**query, "side": side}))["lines"]:
        if side == "after":
            assert answer["before"] == len(places)
            places += seen(answer)
        else:
            places = seen(answer) + places
        host, line = places[-1 if side == "after" else 0]
        query = {**query, "of": host, "line": line}
        query.pop("part", None)
    assert len(places) == answer["total"]
    return places


@pytest.mark.parametrize("host", [None, 1])
def test_windows_one_after_another_show_each_line_once_in_order_of_time(host: int | None) -> None:
    logs = reader(filled(lines=5000))
    query = WindowQuery(lines=700, **({} if host is None else {"host": host}))
    hosts = range(2) if host is None else [host]
    every = [(h, n) for n in range(1, 5001) for h in hosts]
    assert walk(logs, {**query, "part": 0.0}, "after") == every
    assert walk(logs, {**query, "part": 1.0}, "before") == every


def test_hosts_that_write_at_the_same_instant_are_walked_without_loss() -> None:
    shelf, chance = Shelf(), random.Random(3)
    for host in range(2):
        at = 1.7e9
        for number in range(1, 6):
            count = chance.randrange(1, 2500)
            first = 1 + sum(int(f["lines"]) for p, f in shelf.facts.items() if f"host-{host}/" in p)
            at = shelf.ship(host, first, [b"x"] * count, number=number, at=at, every=0.0)
            at = round(at + chance.choice([0, 0.001]), 3)
    places = walk(reader(shelf), {"part": 0.0, "lines": 333}, "after")
    assert len(places) == len(set(places))


def test_without_a_place_the_last_lines_are_shown_and_reading_goes_on_behind_them() -> None:
    shelf, job = filled(), a_job()
    logs = reader(shelf)
    answer = logs.window(job, {})
    assert seen(answer)[-1] == (1, 30_000)
    assert not answer["done"], "the job goes on"
    shelf.ship(0, 30_001, [b"new"], number=99, at=1.8e9)
    page = logs.page(job, cursor=answer["cursor"])
    assert [(x["host"], x.get("line"), x["text"]) for x in page["lines"]] == [(0, 30_001, "new")]
    assert logs.window(JOB, {})["done"]
    assert logs.window(JOB, {"part": 0.0})["cursor"] == "", "what follows is reached by windows"


def test_a_part_of_the_whole_is_where_it_says() -> None:
    logs = reader(filled())
    for part in (0.0, 0.25, 0.5, 0.9, 1.0):
        answer = logs.window(JOB, {"part": part})
        middle = answer["before"] / answer["total"]
        assert abs(middle - part) < 0.01, f"{part} is shown at {middle}"


def test_lines_keep_their_numbers_when_others_are_dropped() -> None:
    shelf = Shelf()
    shelf.ship(0, 1, [b"head"] * 100, number=1)
    shelf.ship(0, 101, [b"[tpujob] 5000 lines were dropped here"], number=2, at=1.71e9)
    shelf.ship(0, 5101, [b"tail %d" % n for n in range(50)], number=9, at=1.72e9)
    logs = reader(shelf)
    answer = logs.window(JOB, {"host": 0, "line": 5110})
    assert next(x for x in answer["lines"] if x["line"] == 5110)["text"] == "tail 9"
    assert answer["hosts"][0]["missing"] == [LogGap(line=101, lines=5000)], "what is lost is said"
    assert seen(logs.window(JOB, {"line": 2000, "lines": 1})) == [(0, 5101)], "the next one there"
    assert [line.get("line") for line in logs.page(JOB)["lines"]] == [
        *range(1, 102),
        *range(5101, 5151),
    ]


def test_a_log_whose_oldest_segment_is_gone_says_so() -> None:
    shelf = Shelf()
    shelf.ship(0, 4001, [b"x"] * 10, number=2)
    answer = reader(shelf).window(JOB, {"part": 0.0})
    assert answer["hosts"][0]["missing"] == [LogGap(line=1, lines=4000)]
    assert seen(answer)[0] == (0, 4001)


def test_lines_of_many_segments_are_found_by_number() -> None:
    shelf = Shelf()
    for segment in range(1, 4):
        lines = ((segment * 1e4 + i, f"{segment}.{i}") for i in range(2500))
        shelf.write(0, *lines, segment=segment)
    answer = reader(shelf).window(JOB, {"line": 5001, "lines": 1})
    assert [x["text"] for x in answer["lines"]] == ["3.0"]
    assert [x.get("line") for x in reader(shelf).page(JOB, tail=2)["lines"]] == [7499, 7500]


def test_long_lines_and_strange_bytes_are_harmless_and_what_is_cut_is_said() -> None:
    shelf = Shelf()
    lines = [b"x" * 1_000_000, bytes(range(10)) + b"\xff\xfe", b"\x1b[31mred\x1b[0m\t<b>", b"last"]
    shelf.ship(0, 1, lines, number=1)
    answer = reader(shelf).window(JOB, {})
    assert [x["text"] for x in answer["lines"][1:]] == ["\t��", "red\t<b>", "last"]
    assert (len(answer["lines"][0]["text"]), answer["lines"][0]["cut"]) == (2000, 998_000)
    shelf.ship(0, 5, [b"y" * 1_000_000], number=2)
    assert reader(shelf).window(JOB, {})["lines"][-1]["cut"] == 998_000, "also as the last line"
    assert len(reader(shelf).page(JOB, tail=1)["lines"][0]["text"]) == 1_000_000
    whole = reader(shelf).window(JOB, {"line": 1, "lines": 1, "width": 64 * 1024})
    assert len(whole["lines"][0]["text"]) == 64 * 1024
    assert len(reader(shelf).page(JOB)["lines"][0]["text"]) == 1_000_000
    assert reader(shelf).block(JOB).data.count(b"\n") == 5


def test_a_window_of_lines_that_must_be_escaped_stays_small() -> None:
    shelf = Shelf()
    shelf.ship(0, 1, [b'"' * 1900] * 400, number=1)
    answer = reader(shelf).window(JOB, {"lines": 400})
    shown = sum(len(x["text"]) * 5 + window.OVERHEAD for x in answer["lines"])
    assert 0 < shown <= 64 * 1024


def test_a_window_is_of_the_attempt_that_was_asked_for() -> None:
    shelf = Shelf()
    shelf.ship(0, 1, [b"first"], number=1, attempt=1)
    shelf.ship(0, 1, [b"second"], number=1)
    assert [x["text"] for x in reader(shelf).window(JOB, {"attempt": 1})["lines"]] == ["first"]
    assert [x["text"] for x in reader(shelf).window(JOB, {})["lines"]] == ["second"]
    with pytest.raises(NotFound, match="no attempt 7"):
        reader(shelf).window(JOB, {"attempt": 7})
    empty = reader(shelf).window(replace(JOB, attempts=()), {})
    assert (empty["attempt"], empty["lines"], empty["done"]) == (0, [], True)


def test_what_was_sought_is_marked_in_the_lines() -> None:
    shelf = Shelf()
    shelf.ship(0, 1, [b"\x1b[1mLoss\x1b[0m 3, loss 4", b"none"], number=1)
    logs = reader(shelf)
    marked = logs.window(JOB, {"text": "loss", "ignore_case": True})["lines"]
    assert [x.get("marks") for x in marked] == [[(0, 4), (8, 12)], []]
    assert logs.window(JOB, {"text": r"\d", "regexp": True})["lines"][0].get("marks") == [
        (5, 6),
        (13, 14),
    ]
    with pytest.raises(BadRequest, match="not a pattern"):
        logs.window(JOB, {"text": "(", "regexp": True})


# Hosts are not trusted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forged", "readable"),
    [
        ({"lines": str(10**11)}, False),
        ({"lines": "900"}, False),
        ({"lines": "100"}, True),
        ({"lines": "7"}, True),
        ({"line": str(10**12)}, False),
        ({"line": "-1"}, False),
        ({"at": "nan"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_false_metadata_of_a_host_cost_no_line_of_another(
    forged: dict[str, str], readable: bool
) -> None:
    shelf = Shelf()
    for host in (0, 1):
        shelf.ship(host, 1, [b"line %d" % n for n in range(1, 31)], number=1)
    *_, facts = shelf.facts.values()
    facts.update(forged) if forged else facts.clear()
    logs = reader(shelf)
    answer = logs.window(JOB, {"lines": 1000})
    assert [line for host, line in seen(answer) if host == 0] == list(range(1, 31))
    assert any(host for host, _ in seen(answer)) is readable
    page = logs.page(JOB, tail=3)
    assert logs.page(JOB, cursor=page["cursor"])["lines"] == [], "the cursor can be read"
    read, cursor = list[tuple[int, int | None]](), ""
    while (page := logs.page(JOB, cursor=cursor))["lines"]:
        read, cursor = read + [(x["host"], x.get("line")) for x in page["lines"]], page["cursor"]
    assert len(read) == len(set(read)) == 30 + readable * min(int(facts.get("lines", 0)), 30)


def test_folders_of_hosts_that_the_slice_does_not_have_are_passed_over() -> None:
    shelf, job = Shelf(), a_job()
    wide = tuple(replace(slice, type="v4-256") for slice in job.slices)  # 32 hosts, listed together
    job = replace(job, slices=wide, attempts=job.attempts)
    for host in (0, 1, 900, 999_999):
        shelf.ship(host, 1, [b"from %d" % host], number=1)
    answer = reader(shelf).window(job, {})
    assert [host["host"] for host in answer["hosts"]] == [0, 1]
