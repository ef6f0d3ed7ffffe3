"""What holds of messages whatever happens: each note is in one of them, no job is told of too often, quiet is quiet."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.notify.receivers import a_message
from tpujob.domain.notify import tries
from tpujob.domain.notify.digest import LONGEST, PER_JOB, WINDOW, plan
from tpujob.domain.notify.model import Channel, Kind, Message, Note, Receipt
from tpujob.domain.notify.rules import Clocktime, Quiet

NIGHT = Quiet(Clocktime(22 * 60, UTC), Clocktime(7 * 60, UTC))
DAY = 86400.0
KINDS = st.sampled_from([Kind.FAILED, Kind.SUCCEEDED, Kind.WAITING, Kind.LEAK])
#: when, which job, what, for which cause
HAPPENED = st.lists(
    st.tuples(st.integers(0, 7200), st.integers(1, 4), KINDS, st.sampled_from(["CRASH", "HANG"])),
    max_size=40,
)


def told(happened: list[tuple[int, int, Kind, str]], quiet: Quiet | None) -> list[Message]:
    """The messages of two hours of these, and of the day after, looked at when the plan wants it."""
    notes = [
        Note(f"{n}", kind, float(at), "x", job="" if kind is Kind.LEAK else str(job), cause=cause)
        for n, (at, job, kind, cause) in enumerate(sorted(happened, key=lambda h: h[0]))
    ]
    channel, messages, now, kept = Channel("lab"), list[Message](), 0.0, set[str]()
    while now <= 2 * DAY:
        open_ = [n for n in notes if n.at <= now and n.key not in kept]
        found = plan(channel, open_, quiet, now)
        channel = found.channel
        if found.message:
            messages.append(found.message)
            kept |= set(found.message.keys)
            continue
        coming = [n.at for n in notes if n.at > now]
        now = min([*coming, *([found.wake] if found.wake is not None else [])], default=3 * DAY)
    return messages


@settings(max_examples=60, deadline=None)
@given(HAPPENED, st.sampled_from([None, NIGHT]))
def test_each_note_is_in_exactly_one_message(
    happened: list[tuple[int, int, Kind, str]], quiet: Quiet | None
) -> None:
    keys = Counter(key for message in told(happened, quiet) for key in message.keys)
    assert keys == Counter(map(str, range(len(happened))))


@settings(max_examples=60, deadline=None)
@given(HAPPENED)
def test_no_job_is_the_reason_for_two_messages_within_ten_minutes(
    happened: list[tuple[int, int, Kind, str]],
) -> None:
    messages = [m for m in told(happened, None) if not m.kind.urgent]
    for job in map(str, range(1, 5)):
        about = [m for m in messages if any(note.job == job for note in m.notes)]
        for before, after in pairwise(about):
            alone = {note.job for note in after.notes} == {job}
            assert not alone or after.at - before.at >= PER_JOB


@settings(max_examples=60, deadline=None)
@given(HAPPENED)
def test_a_topic_is_told_again_after_its_window_at_the_earliest(
    happened: list[tuple[int, int, Kind, str]],
) -> None:
    for topic in {m.topic for m in told(happened, None)}:
        at = [m.at for m in told(happened, None) if m.topic == topic]
        assert all(b - a >= WINDOW for a, b in pairwise(at))


@settings(max_examples=40, deadline=None)
@given(HAPPENED)
def test_in_quiet_hours_only_the_urgent_is_told(happened: list[tuple[int, int, Kind, str]]) -> None:
    for message in told(happened, NIGHT):
        hour = message.at % DAY / 3600
        assert message.kind.urgent or 7 <= hour < 22, message


def test_a_storm_is_told_less_and_less_often() -> None:
    happened = [(at, at % 3 + 1, Kind.LEAK, "CRASH") for at in range(0, 7200, 10)]
    at = [m.at for m in told(happened, None)]
    gaps = [b - a for a, b in pairwise(at)]
    assert gaps[:4] == [60, 120, 240, 480]
    assert max(gaps) <= LONGEST + 10


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_quiet_hours_end_at_their_time_also_when_clocks_change(zone: str) -> None:
    place = ZoneInfo(zone)
    quiet = Quiet(Clocktime(22 * 60, place), Clocktime(7 * 60, place))
    from datetime import datetime

    for hour in range(24 * 366):
        now = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + hour * 3600.0
        here = datetime.fromtimestamp(now, place)
        ends = quiet.ends(now)
        assert (ends is not None) is (here.hour >= 22 or here.hour < 7), here
        if ends is not None:
            then = datetime.fromtimestamp(ends, place)
            assert (then.hour, then.minute) == (7, 0)
            assert 0 < ends - now <= 10 * 3600


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(0, 1e6))
def test_tries_grow_apart_and_end(chances: list[float], retry_after: float) -> None:
    message, now = a_message(), 0.0
    for chance in chances:
        message = tries.after(message, Receipt("503", retry_after=retry_after), now, chance)
        if message.due is None:
            break
        assert message.due > now
        now = message.due
    assert (message.state == "failed") is (len(chances) > len(tries.PAUSES))
    again = tries.again(message, now)
    assert (again.id, again.due, again.state) == (message.id, now, "waiting")
    assert tries.after(again, Receipt("503"), now, 0.5).state == "waiting", "it begins anew"
