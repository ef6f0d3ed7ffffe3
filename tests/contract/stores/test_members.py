"""The contract of every list of members, on every adapter."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.contract.stores.place import Place
from tpujob.domain.access import Role
from tpujob.domain.members import Member, pinned
from tpujob.errors import Forbidden
from tpujob.ports import Members, Store


@pytest.fixture
def members(store: Store) -> Members:
    return store.members


def test_a_member_is_found_by_name_and_id_by_any_process(place: Place, members: Members) -> None:
    assert members.all() == []
    ada = Member("ada@example.org", Role.ADMIN, "google:1")
    assert members.change(ada.name, lambda _: ada) == ada
    members.change("bob", lambda _: Member("bob", Role.VIEWER))
    for listing in (members, place.open().members):
        assert listing.find("ada@example.org") == ada
        assert listing.with_id("google:1") == ada
        assert listing.find("eve") is None
        assert listing.with_id("google:2") is None
        assert [m.name for m in listing.all()] == ["ada@example.org", "bob"]


def test_whoever_has_not_come_yet_is_not_found_by_an_empty_id(members: Members) -> None:
    members.change("bob", lambda _: Member("bob", Role.VIEWER))
    assert members.with_id("") is None


def test_a_removed_member_is_gone_and_comes_back_as_somebody_new(members: Members) -> None:
    members.change("bob", lambda _: Member("bob", Role.ADMIN, "google:7"))
    assert members.change("bob", lambda now: None if now else Member("bob", Role.VIEWER)) is None
    assert members.find("bob") is None
    assert members.with_id("google:7") is None
    members.change("bob", lambda _: Member("bob", Role.VIEWER))
    assert members.find("bob") == Member("bob", Role.VIEWER), "the id is not remembered"


def test_a_plan_that_raises_changes_nothing(members: Members) -> None:
    members.change("bob", lambda _: Member("bob", Role.VIEWER, "google:7"))
    with pytest.raises(Forbidden, match="had another id"):
        members.change("bob", lambda now: pinned(now, "google:8", "bob"))
    assert members.find("bob") == Member("bob", Role.VIEWER, "google:7")


def test_of_two_who_come_first_under_a_name_one_gets_it(place: Place, members: Members) -> None:
    members.change("bob", lambda _: Member("bob", Role.SUBMITTER))
    stores = [place.open().members for _ in range(2)]

    def come(n: int) -> bool:
        try:
            stores[n].change("bob", lambda now: pinned(now, f"google:{n}", "bob"))
        except Forbidden:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        let_in = list(pool.map(come, range(2)))
    assert sorted(let_in) == [False, True]
    assert members.find("bob") == replace(
        Member("bob", Role.SUBMITTER), id=f"google:{let_in.index(True)}"
    )
