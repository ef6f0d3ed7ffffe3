"""Messages of a notifier over a real store, while a test advances the clock."""

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.callers import ADA
from tests.support.stage import Stage
from tests.support.waiting import until
from tests.support.world import SecretsInMemory
from tests.unit.notify.receivers import a_message
from tests.unit.notify.rig import LAB, Notes, Rig
from tpujob.domain.events import BudgetWarned, EventKind, Finished
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Attempt, Cause, Edge, Proof, State
from tpujob.domain.notifications import delivery, messages
from tpujob.domain.notifications.model import MESSAGE_TTL, NotificationKind, Receipt
from tpujob.domain.notifications.rules import ChannelRule, read_events, report_account
from tpujob.domain.observations import Account
from tpujob.domain.spec import parse
from tpujob.engine.notification_collector import Channel, NotificationSetup
from tpujob.engine.notifier import APART, ROUND
from tpujob.errors import DamagedRecord
from tpujob.ports import Owned, Store
from tpujob.service.notifications import Notifications

DOWN = Receipt("HTTP 503")
SPEC = {"name": "mlp", "tpu": {"type": "v4-8"}, "run": {"command": "true"}}


def kinds(sink: Notes) -> list[NotificationKind]:
    return [message.notification.kind for message in sink.got]


def test_a_failure_is_reported_at_once_with_the_line_that_proves_it(rig: Rig) -> None:
    missing = "ModuleNotFoundError: No module named 'nosuchmodule'"
    evidence = (
        Proof(0, "Traceback (most recent call last):"),
        Proof(0, missing),
        Proof(0, "[tpujob] pre-flight: the devices took 0.9 s"),
        Proof(1, "also ended: exit code 1"),
    )
    attempt = Attempt(1, "tj-1", 0.0, cause=Cause.SETUP, host=0, evidence=evidence)
    job = rig.job(name="llama", attempts=(attempt,))
    began = rig.clock.now()
    rig.fails(job, Cause.SETUP, text="something is not installed")
    rig.run(10)
    (message,) = rig.lab.got
    assert message.at - began <= 10
    assert messages.headline(message) == f"llama ({job.id}) failed: SETUP"
    assert messages.command(message.notification) == f"tpujob why {job.id}"
    (note,) = messages.document(message, "http://127.0.0.1:1")["data"]["notes"]
    assert note["lines"] == [missing]
    assert note["url"] == f"http://127.0.0.1:1/jobs/{note['job']}"
    assert messages.lines(message)[1:] == [missing]


def test_a_burst_is_a_bounded_number_of_messages_that_count_all_of_it(rig: Rig) -> None:
    jobs = [rig.job(name=f"sweep-{n}") for n in range(300)]
    rig.run(1)
    for start in range(0, 300, 50):
        for job in jobs[start : start + 50]:
            rig.fails(job)
        rig.run(3)
    rig.run(600)
    assert len(rig.lab.got) == 2 * delivery.BURST
    assert sum(1 + message.more for message in rig.lab.got) == 300
    assert messages.lines(rig.lab.got[-1])[-1].startswith("and ")
    states = [message.state for message in rig.store.outbox.messages(limit=999)]
    assert states.count("sent") == 2 * delivery.BURST
    assert states.count("collapsed") == 300 - 2 * delivery.BURST


def test_a_retry_is_not_reported(rig: Rig) -> None:
    job = rig.job()
    rig.run(90)
    rig.resumes(job)
    rig.run(600)
    assert rig.lab.tried == []


def test_a_wait_of_an_hour_for_hardware_is_reported_once(rig: Rig) -> None:
    job = rig.job(name="llama")
    rig.run(3500)
    assert rig.lab.got == []
    rig.run(7200, rig.backend("backend-2"))
    (message,) = rig.lab.got
    assert message.notification.kind is NotificationKind.WAITING
    assert message.notification.job == job.id
    assert "has waited for hardware for 60 min" in message.notification.text


@pytest.mark.parametrize(
    "changes",
    [
        {"held_by": "ana"},
        {"edges": (Edge("000001"),)},
        {"spec": parse({**SPEC, "not_before": "2099-01-01T00:00Z"})},
    ],
)
def test_a_job_put_off_does_not_wait_for_hardware(rig: Rig, changes: dict[str, Any]) -> None:
    rig.job(**changes)
    rig.run(7200)
    assert rig.lab.tried == []


def test_a_job_waits_for_hardware_from_its_release_on(rig: Rig) -> None:
    job = rig.job(held_by="ana")
    rig.run(7200)
    rig.happens(job, EventKind.QUEUE_RELEASED)
    rig.run(3500)
    assert rig.lab.got == []
    rig.run(200)
    assert "has waited for hardware for 60 min" in rig.lab.got[0].notification.text


def test_only_a_cancel_by_another_user_is_reported(rig: Rig) -> None:
    for by in ("ana", "bob"):
        job = rig.job(user="ana", name=f"by-{by}")
        rig.happens(job, EventKind.RELEASE_REQUESTED, by=by)
        rig.happens(job, EventKind.CANCELLED, "cancelled", Finished(Cause.CANCELLED))
    rig.run(60)
    (message,) = rig.lab.got
    assert message.notification.name == "by-bob"
    assert message.notification.text.startswith("bob has cancelled it")


def test_a_job_that_is_put_back_into_the_queue_is_not_reported_as_held(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    job = stage.started()
    stage.api.requeue(job)
    stage.until(job, lambda j: j.state is State.RELEASING)
    assert EventKind.HELD in stage.kinds(job)
    assert read_events(stage.job(job), stage.store.events(job), 0) == []


def test_a_budget_is_reported_once_for_each_limit(rig: Rig) -> None:
    job = rig.job()
    rig.happens(job, EventKind.BUDGET_WARNED, "80 %", BudgetWarned(100, 80))
    rig.run(5)
    rig.happens(job, EventKind.BUDGET_WARNED, "80 %", BudgetWarned(100, 81))
    rig.run(700)
    assert kinds(rig.lab) == [NotificationKind.BUDGET_WARNED]
    rig.fails(job, Cause.BUDGET)
    rig.run(60)
    assert kinds(rig.lab) == [NotificationKind.BUDGET_WARNED, NotificationKind.BUDGET_USED_UP]


@pytest.mark.parametrize(
    ("used", "kind"),
    [(39, None), (40, NotificationKind.BUDGET_WARNED), (50, NotificationKind.BUDGET_USED_UP)],
)
def test_a_low_shared_budget_is_reported(used: int, kind: NotificationKind | None) -> None:
    fact = report_account(Account("user ada", 50, used, reserve=0, burn=0, at=0.0))
    assert (fact and (fact.kind, fact.user)) == (kind and (kind, "ada"))


def test_a_leak_is_reported_once_however_often_it_is_swept(rig: Rig) -> None:
    leak = Owned("tj-000009-1", "us-central2-b", "000009", rig.clock.now() - 7200, CLOUD_TPU)
    for _ in range(5):
        rig.notifier.leaked([leak])
        rig.run(300)
    (message,) = rig.lab.got
    assert "tj-000009-1 in us-central2-b is 2 h old" in message.notification.text


# Channels ------------------------------------------------------------------------------------------------------------


def test_rules_of_jobs_users_and_contexts_lead_to_channels(store: Store) -> None:
    rules = [
        ChannelRule(("ada",), users=("ada",)),
        ChannelRule(("ops",), on=frozenset({NotificationKind.LEAK, NotificationKind.FAILED})),
    ]
    rig = Rig(store, rules=rules, channels=["ada", "ops"])
    rig.run(1)
    spec = parse({**SPEC, "notify": ["lab", "nobody"]})
    rig.fails(rig.job(user="ada", name="one"))
    rig.happens(
        rig.job(user="bob", name="two", spec=spec), EventKind.BUDGET_WARNED, "", BudgetWarned(9, 8)
    )
    rig.notifier.leaked([Owned("tj-1", "us-central2-b", "1", 0.0, CLOUD_TPU)])
    rig.run(60)
    sent = {name: kinds(sink) for name, sink in rig.sinks.items()}
    assert sent["ada"] == [NotificationKind.FAILED]
    assert sorted(sent["ops"]) == [NotificationKind.FAILED, NotificationKind.LEAK]
    assert sent["lab"] == [NotificationKind.BUDGET_WARNED], "its own file names the channel"


# Restarts, kills and several backends --------------------------------------------------------------------------------


def test_events_before_the_set_up_of_notifications_are_not_reported(store: Store) -> None:
    before = Rig(store)
    old = before.job()
    before.fails(old)
    rig = Rig(store)
    rig.clock.sleep(before.clock.now() - rig.clock.now() + 5)
    rig.run(5)
    rig.resumes(old)
    rig.run(60)
    assert rig.lab.tried == []


def test_a_backend_that_starts_later_reports_events_before(rig: Rig) -> None:
    rig.fails(rig.job(name="while-no-backend-ran"))
    rig.clock.sleep(7200)
    rig.notifier = rig.backend("backend-2")
    rig.run(30)
    assert rig.lab.names == ["while-no-backend-ran"]


def test_two_backends_send_each_thing_once(rig: Rig) -> None:
    other = rig.backend("backend-2")
    for n in range(20):
        rig.fails(rig.job(name=f"job-{n}"), cause=[Cause.CRASH, Cause.HANG][n % 2])
        rig.run(7, other)
    rig.run(600, other)
    assert sorted(rig.lab.names) == sorted(f"job-{n}" for n in range(20))


class Killed(Exception):
    """The process is killed here."""


#: for each kill: a method of the outbox, the number of its call, and whether the call still takes effect
CUTS = {
    "before messages are stored": ("add", 1, False),
    "when they are stored": ("add", 1, True),
    "before a message is claimed": ("update", 1, False),
    "when it is claimed": ("update", 1, True),
    "between delivery and record": ("update", 2, False),
    "when the delivery is recorded": ("update", 2, True),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_backend_that_is_killed_anywhere_loses_nothing(
    rig: Rig, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a message whose delivery was not recorded is delivered twice, with the same id."""
    method, at, done = CUTS[cut]
    real = getattr(rig.store.outbox, method)
    calls = 0

    def killed(_: object, *args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls < at:
            return real(*args, **kwargs)
        if calls == at and done:
            real(*args, **kwargs)
        raise Killed

    rig.fails(rig.job(name="one"))
    with monkeypatch.context() as patched:
        patched.setattr(type(rig.store.outbox), method, killed)
        rig.run(1)
    assert calls >= at
    rig.notifier = rig.backend("backend-2")
    rig.run(120)
    assert set(rig.lab.names) == {"one"}
    assert len({message.id for message in rig.lab.got}) == 1
    assert len(rig.lab.got) == (2 if cut == "between delivery and record" else 1)


def test_a_repaired_record_is_reported(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rig.job(name="one")
    rig.run(1)
    rig.fails(job)

    def fail(*_: object, **__: object) -> object:
        raise DamagedRecord("the record of job 000001 is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(type(rig.store), "peek", fail)
        rig.run(1)
    with monkeypatch.context() as patched:
        patched.setattr(type(rig.store.outbox), "add", fail)
        rig.run(1)
    rig.run(60)
    assert rig.lab.names == ["one"]


def test_a_message_added_in_a_poll_is_sent_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, leak = rig.store.changes, Owned("tj-000009-1", "us-east1-d", "000009", 0.0, CLOUD_TPU)

    def changes_after_a_leak(after: int) -> tuple[int, list[str]]:
        rig.notifier.leaked([leak])
        return changes(after)

    monkeypatch.setattr(rig.store, "changes", changes_after_a_leak)
    rig.notifier.poke()
    rig.notifier.step()
    assert kinds(rig.lab) == [NotificationKind.LEAK]


def test_polls_are_apart_for_any_commits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(store)
    polls: list[float] = []
    step = rig.notifier.step

    def timed_step() -> object:
        polls.append(time.monotonic())
        return step()

    monkeypatch.setattr(rig.notifier, "step", timed_step)
    rig.notifier.start()
    until(lambda: rig.notifier.poke() or len(polls) >= 4, "four polls")
    rig.notifier.stop()
    assert min(later - earlier for earlier, later in pairwise(polls)) > 0.9 * APART


def test_polls_go_on_when_the_clock_is_set_back(rig: Rig) -> None:
    rig.run(2 * 3600, poke=False)
    rig.clock.sleep(-3600)
    rig.fails(rig.job(name="one"))
    rig.run(10, poke=False)
    assert rig.lab.names == ["one"]


def test_a_channel_pauses_for_as_long_as_was_asked_whatever_is_done_to_the_clock(rig: Rig) -> None:
    rig.clock.ahead = 7200.0
    rig.lab.answer = lambda _: Receipt("HTTP 429", retry_after=60.0)
    rig.fails(rig.job(name="one"))
    rig.run(10)
    rig.clock.ahead = 0.0
    rig.lab.answer = lambda _: Receipt()
    rig.fails(rig.job(name="two"))
    rig.run(30)
    assert rig.lab.names == []
    rig.run(60)
    assert rig.lab.names == ["two"]


# Sinks that fail -----------------------------------------------------------------------------------------------------


def test_a_receiver_that_was_down_for_an_hour_gets_all_later_with_the_same_ids(rig: Rig) -> None:
    rig.lab.answer = lambda _: DOWN
    for n in range(20):
        rig.fails(rig.job(name=f"job-{n}"), cause=list(Cause)[n % 9])
        rig.run(180, poke=False)
    tried = {message.id for message in rig.lab.tried}
    rig.lab.answer = lambda _: Receipt()
    rig.run(2 * 3600, poke=False)
    assert tried <= {message.id for message in rig.lab.got}
    assert sum(1 + message.more for message in rig.lab.got) == 20


def test_a_dead_channel_does_not_delay_another(store: Store) -> None:
    rig = Rig(store, rules=[ChannelRule(("lab", "ops"))], channels=["ops"])
    rig.run(1)
    rig.lab.answer = lambda _: DOWN
    rig.fails(rig.job())
    rig.run(10)
    assert len(rig.sinks["ops"].got) == 1


def test_many_messages_of_a_dead_channel_do_not_delay_another(store: Store) -> None:
    rig = Rig(store, rules=[LAB, ChannelRule(("ops",), users=("zoe",))], channels=["ops"])
    rig.run(1)
    rig.lab.answer = lambda _: DOWN
    message = replace(a_message(), channel="lab", at=rig.clock.now(), due=rig.clock.now())
    store.outbox.add([replace(message, id=f"msg_{n}") for n in range(ROUND + 50)])
    rig.run(60)
    rig.fails(rig.job(name="other", user="zoe"))
    rig.run(60)
    assert rig.sinks["ops"].names == ["other"]


def test_a_channel_that_fails_says_so_however_many_messages_wait(rig: Rig) -> None:
    rig.run(1)
    rig.lab.answer = lambda _: DOWN
    for n in range(20):
        rig.fails(rig.job(name=f"job-{n}"))
        rig.run(1)
    setup = NotificationSetup({"lab": Channel("webhook", "x", rig.lab)})
    shown = Notifications(
        rig.store.outbox, setup, rig.notifier.sender, SecretsInMemory(), rig.clock
    )
    (channel,) = shown.channels(ADA)
    assert (channel["state"], channel["waiting"]) == ("failing", 20)


def test_a_receiver_says_when_it_is_asked_again(rig: Rig) -> None:
    answers = [Receipt("HTTP 429", retry_after=900.0), Receipt()]
    rig.lab.answer = lambda _: answers.pop(0)
    rig.fails(rig.job(name="one"))
    rig.run(10)
    rig.fails(rig.job(name="two"), Cause.HANG)
    rig.run(880)
    assert rig.lab.got == [], "the other message waits, too: the channel was asked to be left alone"
    answers.append(Receipt())
    rig.run(60)
    assert len(rig.lab.got) == 2


def test_a_refusal_for_good_ends_the_tries(rig: Rig) -> None:
    rig.lab.answer = lambda _: Receipt("HTTP 404", permanent=True)
    rig.fails(rig.job())
    rig.run(7200)
    assert len(rig.lab.tried) == 1
    assert rig.store.outbox.messages(limit=9)[0].state == "failed"


def test_a_test_is_sent_at_once_and_once(rig: Rig) -> None:
    assert rig.notifier.sender.test("lab", "ada").state == "sent"
    rig.run(120)
    assert kinds(rig.lab) == [NotificationKind.TEST]


def test_a_channel_that_is_not_set_up_any_more_ends_its_messages(store: Store) -> None:
    rig = Rig(store, rules=[LAB, ChannelRule(("old",))], channels=["old"])
    rig.run(1)
    rig.sinks["old"].answer = lambda _: DOWN
    rig.fails(rig.job())
    rig.run(1)
    rig.channels.remove("old")
    rig.notifier = rig.backend()
    rig.run(7200)
    ended = rig.store.outbox.messages(channel="old", limit=9)
    assert [(m.state, m.error) for m in ended] == [
        ("failed", "no channel of that name is configured")
    ]


def test_old_messages_are_removed_and_young_ones_stay(rig: Rig) -> None:
    rig.fails(rig.job(name="one"))
    rig.run(60)
    rig.clock.sleep(MESSAGE_TTL)
    rig.fails(rig.job(name="two"))
    rig.run(7200)
    assert [m.notification.name for m in rig.store.outbox.messages(limit=9)] == ["two"]


# One message ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=100), st.floats(0, 1e6))
def test_pauses_grow_and_tries_end(chances: list[float], retry_after: float) -> None:
    message, now = a_message(), 0.0
    for chance in chances:
        message = delivery.record_try(message, Receipt("503", False, retry_after), now, chance)
        if message.due is None:
            break
        assert message.due > now
        now = message.due
    assert (message.state == "failed") is (len(chances) >= delivery.MAX_TRIES)


def test_tries_take_about_three_days() -> None:
    pauses = [*delivery.PAUSES, *delivery.PAUSES[-1:] * (delivery.MAX_TRIES - 1)]
    assert 70 < sum(pauses[: delivery.MAX_TRIES - 1]) / 3600 < 75
