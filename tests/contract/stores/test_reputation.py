"""The contract of every Reputation, on every adapter."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.stores.place import Place
from tests.support.stores import a_job, an_event
from tpujob.domain.failures.host_reputation import HALF_LIFE, REASONS
from tpujob.domain.model import Suspect
from tpujob.ports import Reputation, Store


@pytest.fixture
def reputation(store: Store) -> Reputation:
    return store.reputation


def accuse(
    reputation: Reputation,
    *physicals: str,
    op: str,
    weight: float = 1.0,
    at: float = 1000.0,
    owner: str = "uid:1",
) -> None:
    reputation.accuse(
        physicals,
        zone="us-central2-b",
        weight=weight,
        reason=f"by {op}",
        op_id=op,
        at=at,
        owner=owner,
    )


def scores(reputation: Reputation) -> dict[str, float]:
    return {s.physical: s.score for s in reputation.suspects()}


def test_an_accusation_is_remembered_with_its_reason(place: Place, reputation: Reputation) -> None:
    assert reputation.suspects() == []
    accuse(reputation, "h1", "h2", op="a", weight=0.8)
    accuse(reputation, "h2", op="b", weight=2.0, owner="uid:2")
    for opened in (reputation, place.open().reputation):
        worst, other = opened.suspects()
        assert worst == Suspect(
            "h2",
            "us-central2-b",
            2.8,
            1000.0,
            reasons=("by a", "by b"),
            owners={"uid:1": 0.8, "uid:2": 2.0},
        ), "the highest score first"
        assert other == Suspect(
            "h1", "us-central2-b", 0.8, 1000.0, reasons=("by a",), owners={"uid:1": 0.8}
        )


def test_a_score_has_faded_when_the_next_accusation_adds_to_it(reputation: Reputation) -> None:
    accuse(reputation, "h1", op="a", weight=2.0, at=1000.0)
    accuse(reputation, "h1", op="b", weight=1.0, at=1000.0 + HALF_LIFE)
    accuse(reputation, "h2", op="c", weight=1.5, at=1000.0)
    first, second = reputation.suspects()
    assert first.physical == "h1"
    assert first.score == pytest.approx(2.0)
    assert first.updated_at == 1000.0 + HALF_LIFE
    assert second.score == 1.5, "a score without additions stays as it was written"


def test_the_order_of_suspects_is_that_of_their_scores_at_one_time(reputation: Reputation) -> None:
    accuse(reputation, "old", op="a", weight=2.0, at=0.0)
    accuse(reputation, "new", op="b", weight=1.0, at=3 * HALF_LIFE)
    assert [s.physical for s in reputation.suspects()] == ["new", "old"]


def test_a_repeated_accusation_changes_nothing(place: Place, reputation: Reputation) -> None:
    accuse(reputation, "h1", "h1", op="a")
    accuse(place.open().reputation, "h1", op="a")
    accuse(reputation, "h1", "h2", op="a", weight=9.0)
    assert scores(reputation) == {"h1": 1.0}


def test_a_repeated_call_does_not_bring_back_what_was_forgotten(reputation: Reputation) -> None:
    accuse(reputation, "h1", op="a")
    reputation.remove("h1")
    reputation.remove("h1")
    accuse(reputation, "h1", op="a")
    assert reputation.suspects() == []
    accuse(reputation, "h1", op="b", weight=0.5)
    assert scores(reputation) == {"h1": 0.5}, "a new accusation counts, and alone"


def test_an_accusation_of_nobody_is_made_once_too(reputation: Reputation) -> None:
    accuse(reputation, op="a")
    accuse(reputation, "h1", op="a")
    assert reputation.suspects() == []


def test_only_the_newest_reasons_are_kept(reputation: Reputation) -> None:
    for n in range(REASONS + 3):
        accuse(reputation, "h1", op=str(n))
    (suspect,) = reputation.suspects()
    assert suspect.reasons == tuple(f"by {n}" for n in range(3, REASONS + 3))
    assert suspect.score == REASONS + 3


def test_a_record_of_a_suspect_is_written_over(reputation: Reputation) -> None:
    accuse(reputation, "h1", op="a")
    pinned = Suspect(
        "h1", "us-east5-b", 0.25, 5.0, "bad", ("a person's word", "\u202e'; --"), {"\u202e'": 0.25}
    )
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
    assert scores(reputation) == {"h1": len(ops), "h2": len(ops)}


def test_a_change_of_suspects_is_no_change_of_jobs(store: Store, reputation: Reputation) -> None:
    store.create(a_job(), an_event())
    before, _ = store.changes(0)
    accuse(reputation, "h1", op="a")
    assert store.changes(before) == (before, [])
