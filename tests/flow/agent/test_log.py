"""The upload of a program's output: much output, strange bytes, a storage outage."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.flow.agent.gate import open_gate, start_at_gate
from tests.support.agent_host import Host, until
from tests.support.simulation.sim import Sim
from tests.support.virtual_threads import virtual
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import Log, Redactor, log, spool
from tpujob.protocol import segment


def test_strange_output_becomes_lines(host: Host) -> None:
    host.run(r"printf 'a\r\nb\0c\xff\n\n10%%\r20%%\r30%%\nlast\r'")
    assert host.bucket.log() == ["a", "b\0c�", "", "30%", "last"]


def test_a_line_without_an_end_is_cut_into_pieces(host: Host) -> None:
    host.run("head -c 1000000 /dev/zero | tr '\\0' x")
    lines = host.bucket.log()
    assert sum(map(len, lines)) == 1_000_000
    assert max(map(len, lines)) == 64 * 1024


def test_a_storage_outage_loses_no_log_and_blocks_no_program(host: Host) -> None:
    start_at_gate(host, "seq 300000; touch ~/done; exit 7")
    host.bucket.away()
    open_gate(host)
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
    start_at_gate(host, f"seq -f %040.0f {count}; touch ~/done", log_bytes=4 * 1024 * 1024)
    if storage == "away":  # lines are dropped before any is shipped
        host.bucket.away()
    open_gate(host)
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
    for name, facts in host.bucket.segments():
        held = [line.split()[1] for line in host.bucket.read(name).decode().splitlines()]
        assert facts is not None, f"{name} does not say which lines it holds"
        assert facts.lines == len(held)
        first = len(head) + 1 if held[0] == "[tpujob]" else int(held[0])
        assert facts.line == first, "a line keeps its number, however many are dropped before it"


@pytest.mark.slow
def test_a_million_lines_at_full_speed_take_little_memory(host: Host) -> None:
    program = "seq -f 'a line of some usual length, %.0f' 1000000; touch ~/done; sleep 1000"
    pid = host.start(program)["pid"]
    until((host.home / "done").exists, "the last line", 120)
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
    assert peak < 60 * 1024, f"the agent took {peak // 1024} MiB"
    host.agent("stop", "--grace", 1)


# When it is shipped --------------------------------------------------------------------------------------------------


class Bucket:
    """A bucket in memory, which says when it got what."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.facts: list[segment.SegmentFacts] = []
        self.away = False

    def put(self, path: str, data: bytes, metadata: dict[str, str]) -> None:
        if self.away:
            raise StorageError("refused for now", 403)
        self.objects[path] = data
        facts = segment.read(metadata)
        assert facts
        self.facts.append(facts)

    def delete(self, path: str) -> None:
        del self.objects[path]

    @property
    def lines(self) -> list[str]:
        text = b"".join(data for _, data in sorted(self.objects.items())).decode()
        return [line.partition(" ")[2] for line in text.splitlines()]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[tuple[Sim, Bucket, Log]]:
    """A log in virtual time, with a line waiting five minutes at most."""
    sim, bucket = Sim(0), Bucket()
    storage: Any = bucket
    with virtual(sim, log, spool):
        begun = str(tmp_path / "begun")
        yield sim, bucket, Log(storage, "{:05d}".format, begun, 1 << 28, Redactor({}), 300)
        sim.stop()


def after(sim: Sim, seconds: float) -> None:
    sim.run_until(sim.now + seconds)


def test_a_line_waits_for_five_minutes_at_most(played: tuple[Sim, Bucket, Log]) -> None:
    sim, bucket, written = played
    sim.spawn(lambda: written.note("first", ""))
    after(sim, 200)
    sim.spawn(lambda: written.note("second", ""))
    after(sim, 99)
    assert bucket.objects == {}
    after(sim, 2)
    assert bucket.lines == ["first", "second"]
    sim.spawn(lambda: written.note("third", ""))
    after(sim, 299)
    assert len(bucket.objects) == 1
    after(sim, 2)
    assert bucket.lines == ["first", "second", "third"]


def test_four_mebibytes_are_shipped_at_once_in_one_object(played: tuple[Sim, Bucket, Log]) -> None:
    sim, bucket, written = played
    sim.spawn(lambda: [written.note(f"{n:0100}", "") for n in range(80_000)])
    after(sim, 1)
    assert [len(data) // 2**20 for data in bucket.objects.values()] == [4, 4]


@pytest.mark.parametrize("doomed", [False, True])
def test_a_stop_or_a_notice_uploads_at_once(played: tuple[Sim, Bucket, Log], doomed: bool) -> None:
    sim, bucket, written = played
    sim.spawn(lambda: written.note("before", ""))
    after(sim, 1)
    sim.spawn(lambda: written.flush(doomed))
    after(sim, 1)
    assert bucket.lines == ["before"]
    sim.spawn(lambda: written.note("after", ""))
    after(sim, 6)
    assert bucket.lines == ["before", "after"][: 1 + doomed], "a doomed host ships within seconds"


def test_a_notice_with_ten_mebibytes_waiting(played: tuple[Sim, Bucket, Log]) -> None:
    sim, bucket, written = played
    bucket.away = True
    sim.spawn(lambda: [written.note(f"{n:0100}", "") for n in range(90_000)])
    after(sim, 60)
    bucket.away = False
    sim.spawn(lambda: written.flush(soon=True))
    after(sim, 6)
    assert [int(line) for line in bucket.lines] == [*range(90_000)], "all of it, in order, in time"


@pytest.mark.parametrize("dies", ["later", "before it hears that the bucket has its lines"])
def test_an_agent_that_is_started_again_goes_on_where_the_first_one_was(
    played: tuple[Sim, Bucket, Log], tmp_path: Path, dies: str
) -> None:
    sim, bucket, first = played

    def put(path: str, data: bytes, metadata: dict[str, str]) -> None:
        Bucket.put(bucket, path, data, metadata)
        sim.sleep(1e9)

    with mock.patch.object(bucket, "put", bucket.put if dies == "later" else put):
        sim.spawn(lambda: [first.note(f"{n}", "") for n in range(3)])
        after(sim, 301)
    storage: Any = bucket
    second = Log(storage, "{:05d}".format, str(tmp_path / "begun"), 1 << 28, Redactor({}), 300)
    sim.spawn(lambda: second.note("3", ""))
    after(sim, 301)
    assert [int(line) for line in bucket.lines] == [0, 1, 2, 3], "nothing is written over"
    assert second.count == 4, "lines keep their numbers"


def test_a_log_says_once_that_it_has_ended(played: tuple[Sim, Bucket, Log]) -> None:
    sim, bucket, written = played
    sim.spawn(lambda: written.note("last", ""))
    after(sim, 301)
    assert [facts.open for facts in bucket.facts] == [True], "more may come"
    sim.spawn(lambda: written.finish(9))
    after(sim, 10)
    assert [(facts.line, facts.lines, facts.open) for facts in bucket.facts] == [
        (1, 1, True),
        (2, 0, False),
    ]


def test_what_is_noted_after_the_end_of_a_log_is_in_the_agents_own(
    played: tuple[Sim, Bucket, Log], capfd: pytest.CaptureFixture[str]
) -> None:
    sim, bucket, written = played
    sim.spawn(lambda: written.note("last", ""))
    sim.spawn(lambda: written.finish(9))
    after(sim, 10)
    sim.spawn(lambda: written.note("too late"))
    after(sim, 301)
    assert bucket.lines == ["last"]
    assert capfd.readouterr().out == "[tpujob] too late\n"
