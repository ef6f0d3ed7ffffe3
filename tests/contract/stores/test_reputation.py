"""The contract of every Reputation, on every adapter."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.stores.place import Place
from tests.support.records import accusation
from tests.support.stores import a_job, an_event
from tpujob.domain.failures.host_reputation import HALF_LIFE, MAX_ACCUSATIONS
from tpujob.domain.model import Standing, Suspect
from tpujob.ports import Reputation, Store


@pytest.fixture
def reputation(store: Store) -> Reputation:
    return store.reputation


def accuse(reputation: Reputation, *physicals: str, op: str, **fields: Any) -> None:
    reputation.accuse(physicals, accusation(op, **fields))


def held(reputation: Reputation) -> dict[str, list[str]]:
    return {s.physical: [a.job for a in s.accusations] for s in reputation.suspects()}


def test_an_accusation_is_remembered_with_its_facts(place: Place, reputation: Reputation) -> None:
    assert reputation.suspects() == []
    accuse(reputation, "h1", "h2", op="a", weight=0.8, at=1000.0)
    accuse(reputation, "h2", op="b", weight=2.0, owner="\u202e'; --", at=1001.0)
    first = accusation("a", weight=0.8, at=1000.0)
    second = accusation("b", weight=2.0, owner="\u202e'; --", at=1001.0)
    for opened in (reputation, place.open().reputation):
        worst, other = opened.suspects()
        assert worst == Suspect("h2", "us-central2-b", 1001.0, "", (first, second)), "worst first"
        assert other == Suspect("h1", "us-central2-b", 1000.0, "", (first,))


def test_the_order_of_suspects_is_that_of_their_scores_at_one_time(reputation: Reputation) -> None:
    accuse(reputation, "old", op="a", weight=2.0, at=0.0)
    accuse(reputation, "new", op="b", weight=1.0, at=3 * HALF_LIFE)
    assert [s.physical for s in reputation.suspects()] == ["new", "old"]


def test_a_repeated_accusation_changes_nothing(place: Place, reputation: Reputation) -> None:
    accuse(reputation, "h1", "h1", op="a")
    accuse(place.open().reputation, "h1", op="a")
    accuse(reputation, "h1", "h2", op="a", weight=9.0)
    assert held(reputation) == {"h1": ["a"]}


def test_an_open_accusation_is_proved_or_refuted_later(reputation: Reputation) -> None:
    for op, standing in (("a", Standing.PROVED), ("b", Standing.REFUTED)):
        accuse(reputation, "h1", op=op, standing=Standing.OPEN)
        accuse(reputation, "h1", op=op, standing=standing)
    (suspect,) = reputation.suspects()
    assert suspect.accusations == (accusation("a"),)


def test_a_machine_of_which_nothing_is_left_is_not_shown(reputation: Reputation) -> None:
    accuse(reputation, "h1", op="a", standing=Standing.OPEN)
    accuse(reputation, "h1", op="a", standing=Standing.REFUTED)
    assert reputation.suspects() == []


def test_a_repeated_call_does_not_bring_back_what_was_forgotten(reputation: Reputation) -> None:
    accuse(reputation, "h1", op="a")
    reputation.remove("h1")
    reputation.remove("h1")
    accuse(reputation, "h1", op="a")
    assert reputation.suspects() == []
    accuse(reputation, "h1", op="b", weight=0.5)
    assert held(reputation) == {"h1": ["b"]}, "a new accusation counts, and alone"


def test_an_accusation_of_nobody_is_made_once_too(reputation: Reputation) -> None:
    accuse(reputation, op="a")
    accuse(reputation, "h1", op="a")
    assert reputation.suspects() == []


def test_only_the_newest_accusations_are_kept(reputation: Reputation) -> None:
    for n in range(MAX_ACCUSATIONS + 3):
        accuse(reputation, "h1", op=str(n))
    assert held(reputation) == {"h1": [str(n) for n in range(3, MAX_ACCUSATIONS + 3)]}


def test_a_record_of_a_suspect_is_written_over(reputation: Reputation) -> None:
    accuse(reputation, "h1", op="a")
    pinned = Suspect("h1", "us-east5-b", 5.0, "bad", (accusation("c", owner="\u202e'"),))
    reputation.put(pinned)
    assert reputation.suspects() == [pinned]
    accuse(reputation, "h1", op="b", at=5.0)
    (suspect,) = reputation.suspects()
    assert suspect.pinned == "bad", "an accusation leaves a person's word alone"


def test_accusers_at_once_lose_and_repeat_nothing(place: Place, reputation: Reputation) -> None:
    """Two openers of each accusation, all at once: as when a backend takes over while the old one still works."""
    ops = [f"op-{n}" for n in range(12)]
    openers = [reputation, place.open().reputation]

    def work(n: int) -> None:
        accuse(openers[n % 2], "h1", "h2", op=ops[n // 2])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(2 * len(ops))))
    kept = {machine: sorted(jobs) for machine, jobs in held(reputation).items()}
    assert kept == {"h1": sorted(ops), "h2": sorted(ops)}


def test_a_change_of_suspects_is_no_change_of_jobs(store: Store, reputation: Reputation) -> None:
    store.create(a_job(), an_event())
    before, _ = store.changes(0)
    accuse(reputation, "h1", op="a")
    assert store.changes(before) == (before, [])
