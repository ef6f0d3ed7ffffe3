"""Members who leave: what is theirs is on record, goes to another member, and never to a stranger."""

import logging
from collections.abc import Mapping, Sequence

import pytest

from tests.support.callers import ADA
from tests.support.stage import SPEC, Stage
from tpujob.api import JobsApi
from tpujob.domain import invariants
from tpujob.domain.access import Principal
from tpujob.domain.model import State
from tpujob.errors import BadRequest, Forbidden, IllegalInState, NotFound
from tpujob.service import Entrance, Membership

BOB_ID, EVE_ID = "uid:1004:cor.bob", "uid:1005:eve"
WITH_KEY = {**SPEC, "run": {"command": "python3 train.py", "secrets": ["BOB_KEY"]}}


def membership(stage: Stage, named: Mapping[str, Sequence[str]] | None = None) -> Membership:
    return Membership(stage.store.members, stage.store, stage.secrets, named or {})


def join(stage: Stage, id: str, name: str, role: str = "submitter") -> Principal:
    stage.api.give_role(name, role)
    return membership(stage).recognise(id, name)


@pytest.fixture
def bob(stage: Stage) -> JobsApi:
    """Return the service for a member with a running job, an ended one, and a secret."""
    bob = stage.api.acting_for(join(stage, BOB_ID, "cor.bob"))
    bob.set_secret("BOB_KEY", "seulavsbob")
    ended, runs = bob.create(WITH_KEY)["id"], bob.create({**WITH_KEY, "name": "runs"})["id"]
    bob.cancel(ended)
    stage.until(ended, State.CANCELLED)
    stage.until(runs, State.RUNNING)
    return bob


def test_a_member_who_left_stays_on_record_until_nothing_is_theirs(
    stage: Stage, bob: JobsApi
) -> None:
    removed = stage.api.remove_member("Cor.Bob")
    assert (removed.get("jobs"), removed.get("active"), removed.get("secrets")) == (2, 1, 1)
    with pytest.raises(Forbidden, match="is not a member"):
        membership(stage).recognise(BOB_ID, "cor.bob")
    (listed,) = stage.api.members()
    assert listed == {k: v for k, v in removed.items() if k != "warnings"}
    assert stage.job("000002").state is State.RUNNING
    with pytest.raises(IllegalInState, match="is active and uses the secret"):
        stage.api.remove_member("cor.bob", secrets=True)
    stage.api.delete("2")
    stage.until("000002", State.CANCELLED)
    assert stage.api.remove_member("cor.bob", secrets=True).get("secrets") == 0
    for job in ("1", "2"):
        stage.api.clean(job)
        stage.step(job.zfill(6))
    assert stage.api.members() == []
    assert stage.api.remove_member("cor.bob").get("jobs") == 0
    with pytest.raises(NotFound):
        stage.api.remove_member("cor.bob")


def test_a_member_who_left_stays_on_record_while_a_record_cannot_be_read(
    stage: Stage, bob: JobsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be theirs, and would have an owner whom nobody can remove, or hand over from, any more."""
    eve = stage.api.acting_for(join(stage, EVE_ID, "eve"))
    damaged = stage.job("000001")
    readable = stage.store.list
    with monkeypatch.context() as broken:
        broken.setattr(stage.store, "damaged", lambda: [(damaged.id, "the record is damaged")])
        broken.setattr(
            stage.store,
            "list",
            lambda **where: [job for job in readable(**where) if job.id != damaged.id],
        )
        removed = stage.api.remove_member("cor.bob", to="eve")
        assert removed.get("unread") == 1
        (warning,) = removed.get("warnings", ())
        assert warning == "1 record cannot be read, and may be theirs: repeat this later"
        assert [view["name"] for view in stage.api.members() if "unread" in view] == ["cor.bob"]
    assert stage.job(damaged.id).owner == BOB_ID
    stage.api.remove_member("cor.bob", to="eve")
    assert stage.job(damaged.id).owner == EVE_ID
    assert [view["name"] for view in stage.api.members()] == ["eve"]
    assert {row["id"] for row in eve.list()["rows"]} == {"000001", "000002"}


def test_another_member_gets_jobs_and_secrets_and_keeps_their_own(
    stage: Stage, bob: JobsApi
) -> None:
    heir = join(stage, EVE_ID, "eve")
    eve = stage.api.acting_for(heir)
    bob.set_secret("SHARED", "of-bob-1")
    eve.set_secret("SHARED", "of-eve-1")
    done = stage.api.remove_member("cor.bob", to="Eve")
    assert (done.get("jobs"), done.get("secrets")) == (0, 0)
    assert {(j.owner, j.user) for j in stage.store.list()} == {(EVE_ID, "eve")}
    assert stage.secrets.get(EVE_ID, "BOB_KEY") == "seulavsbob"
    assert stage.secrets.get(EVE_ID, "SHARED") == "of-eve-1"
    assert stage.secrets.list(BOB_ID) == []
    assert [m["name"] for m in stage.api.members()] == ["eve"]
    last = eve.events("2")[-1]
    assert (last["kind"], last["by"]) == ("handed_over", "ada")
    assert last["text"] == "handed over from cor.bob to eve by ada"
    stage.preempt()
    stage.until("000002", lambda job: len(job.attempts) == 2 and job.state is State.RUNNING)
    eve.resume("digits")
    stage.until("000001", State.RUNNING)
    for job in stage.store.list():
        first = invariants.first_record(job)
        assert invariants.of_history(first, stage.store.events(job.id), job) == []


def test_a_hold_of_the_former_owner_is_the_new_owners_to_release_and_one_of_an_admin_is_not(
    stage: Stage, bob: JobsApi
) -> None:
    eve = stage.api.acting_for(join(stage, EVE_ID, "eve"))
    sweep, by_admin = (
        bob.create({**WITH_KEY, "name": name, "array": {"count": 2}, "start": start})["id"]
        for name, start in (("sweep", "held"), ("by-admin", "now"))
    )
    stage.api.hold(by_admin)
    stage.api.remove_member("cor.bob", to="eve")
    assert stage.job(sweep).held_by == "eve"
    assert eve.release(sweep)["state"] == "queued"
    assert stage.job(sweep).held_by == ""
    with pytest.raises(Forbidden, match="is held by ada"):
        eve.release(by_admin)


def test_a_new_account_with_the_uid_of_one_that_is_gone_inherits_nothing(
    stage: Stage, bob: JobsApi
) -> None:
    stage.api.remove_member("cor.bob")
    new = stage.api.acting_for(join(stage, "uid:1004:corzed", "corzed"))
    assert new.secrets() == []
    assert new.list({"mine": True})["rows"] == []
    for refused in (new.logs, new.resume, new.cancel, new.delete):
        with pytest.raises(Forbidden):
            refused("2")
    assert [m["name"] for m in stage.api.members()] == ["corzed", "cor.bob"]


def test_a_member_who_comes_back_finds_what_was_theirs_and_another_person_does_not(
    stage: Stage, bob: JobsApi
) -> None:
    stage.api.remove_member("cor.bob")
    stage.api.give_role("cor.bob", "viewer")
    assert membership(stage).recognise(BOB_ID, "cor.bob").id == BOB_ID
    with pytest.raises(Forbidden, match="had another id") as refused:
        membership(stage).recognise("uid:1009:cor.bob", "cor.bob")
    assert "`tpujob members remove cor.bob --to NAME`" in refused.value.hint
    stage.api.remove_member("cor.bob", to="ada")
    assert {job.owner for job in stage.store.list()} == {ADA.id}
    again = join(stage, "uid:1009:cor.bob", "cor.bob")
    assert stage.api.acting_for(again).list({"mine": True})["rows"] == []


def test_a_person_with_a_new_address_is_the_same_person(stage: Stage) -> None:
    bob = join(stage, "google:7", "bob@example.org")
    stage.api.acting_for(bob).create(SPEC)
    stage.api.remove_member("bob@example.org")
    stage.api.give_role("robert@example.org", "submitter")
    assert membership(stage).recognise("google:7", "robert@example.org").id == bob.id
    assert [m["name"] for m in stage.api.members()] == ["robert@example.org"]


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("cor.bob", "cannot take over their own jobs"),
        ("nobody", "nobody is not a member"),
        ("new", "has not signed in yet"),
        ("looker", "is a viewer"),
    ],
)
def test_an_heir_is_a_member_who_can_own_jobs(
    stage: Stage, bob: JobsApi, to: str, error: str
) -> None:
    stage.api.give_role("new", "submitter")
    join(stage, "uid:7:looker", "looker", "viewer")
    with pytest.raises((BadRequest, NotFound), match=error):
        stage.api.remove_member("cor.bob", to=to)
    assert membership(stage).recognise(BOB_ID, "cor.bob").name == "cor.bob", "is still a member"


def test_a_name_in_settings_that_is_no_members_is_listed_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    join(stage, EVE_ID, "eve")
    named = {"eve": ["queue.high"], "root": ["queue.high"], "evee": ["budgets.users"]}
    lab = membership(stage, named)
    caplog.clear()  # another test may have made the product's log talkative
    with caplog.at_level(logging.WARNING):
        lab.open(Entrance("root"))
    assert caplog.messages == ["'evee' is no member, but is named in budgets.users"]
    assert lab.members()[1:] == [{"name": "evee", "role": "", "id": "", "named": ["budgets.users"]}]


def test_a_change_without_the_expected_effect_is_warned_of(stage: Stage) -> None:
    lab = membership(stage)
    lab.open(Entrance("root", lambda name: f"no login {name}", "/etc/members.yaml"))
    file = "the next start takes the list from /etc/members.yaml: change it, too"
    assert lab.give_role(ADA, "eve", "viewer").get("warnings") == ["no login eve", file]
    assert lab.settle(lab.leaving(ADA, "eve")).get("warnings") == [file]
