"""The program's output on its way to the bucket: much of it, strange bytes, a storage that is away."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.agent_host import Host, until


def test_strange_output_becomes_lines(host: Host) -> None:
    host.run(r"printf 'a\r\nb\0c\xff\n\n10%%\r20%%\r30%%\nlast\r'")
    assert host.bucket.log() == ["a", "b\0c�", "", "30%", "last"]


def test_a_line_without_an_end_is_cut_into_pieces(host: Host) -> None:
    host.run("head -c 1000000 /dev/zero | tr '\\0' x")
    lines = host.bucket.log()
    assert sum(map(len, lines)) == 1_000_000
    assert max(map(len, lines)) == 64 * 1024


def test_lines_can_be_read_while_the_program_runs(host: Host) -> None:
    host.start("echo early; sleep 1000")
    until(lambda: host.bucket.log() == ["early"], "the first line in the bucket")
    host.agent("stop", "--grace", 1)


def test_a_storage_outage_loses_no_log_and_blocks_nobody(host: Host) -> None:
    host.start(
        "touch ~/up; until [ -e ~/go ]; do sleep 0.05; done; seq 300000; touch ~/done; exit 7"
    )
    until((host.home / "up").exists, "the start of the program")
    host.bucket.away()
    (host.home / "go").touch()
    until((host.home / "done").exists, "the end of the program, with no storage")
    host.bucket.back()
    assert host.ended(seconds=90)["exit_code"] == 7
    numbers = [int(line) for line in host.bucket.log()]
    assert (numbers[0], len(numbers), gaps(numbers)) == (1, 300_000, [])


def gaps(numbers: list[int]) -> list[tuple[int, int]]:
    """The first few places where a number is not followed by the next one."""
    return [pair for pair in itertools.pairwise(numbers) if pair[1] != pair[0] + 1][:5]


@pytest.mark.parametrize("storage", ["there", "away"])
def test_a_very_long_log_keeps_its_head_and_its_tail(host: Host, storage: str) -> None:
    count = 400_000
    wait = "touch ~/up; until [ -e ~/go ]; do sleep 0.05; done"
    host.start(f"{wait}; seq -f %040.0f {count}; touch ~/done", log_bytes=4 * 1024 * 1024)
    until((host.home / "up").exists, "the start of the program")
    if storage == "away":  # lines are dropped before any is shipped
        host.bucket.away()
    (host.home / "go").touch()
    until((host.home / "done").exists, "the end of the program")
    if storage == "away":
        host.bucket.back()
    host.ended(seconds=60)
    lines = host.bucket.log()
    marker = next(i for i, line in enumerate(lines) if line.startswith("[tpujob]"))
    dropped = int(lines[marker].split()[1])
    head = [int(line) for line in lines[:marker]]
    tail = [int(line) for line in lines[marker + 1 :]]
    assert (head[0], gaps(head)) == (1, []), "the head has every line from the first"
    assert (tail[-1], gaps(tail)) == (count, []), "the tail has every line to the last"
    assert dropped + len(lines) - 1 == count, "every line is there or counted"
    assert sum(map(len, lines)) < 6 * 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["there", "away"])
def test_a_million_lines_at_full_speed_take_little_memory(host: Host, storage: str) -> None:
    wait = "touch ~/up; until [ -e ~/go ]; do sleep 0.05; done"
    program = f"{wait}; seq -f 'a line of some usual length, %.0f' 1000000; touch ~/done"
    pid = host.start(program)["pid"]
    until((host.home / "up").exists, "the start of the program")
    if storage == "away":
        host.bucket.away()
    (host.home / "go").touch()
    until((host.home / "done").exists, "the end of the program", 120)
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
    assert peak < 60 * 1024, f"the agent took {peak // 1024} MiB"
    if storage == "away":
        host.bucket.back()
    assert host.ended(seconds=120)["exit_code"] == 0
    lines = host.bucket.log()
    assert len(lines) == 1_000_000
    assert (lines[0][-3:], lines[-1][-8:]) == (", 1", " 1000000")
