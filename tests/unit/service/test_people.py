"""One identity for each user: names in settings, filters and lists are compared as the list of members has them."""

from pathlib import Path

import pytest

from tests.support.callers import caller
from tests.support.stage import SPEC, Stage
from tests.unit.config.test_context import made
from tpujob.config import context, members, notifications, settings
from tpujob.config.queue import queue_settings
from tpujob.domain.members import name_of
from tpujob.domain.model import State
from tpujob.domain.notifications.model import Notification, NotificationKind
from tpujob.errors import BadRequest, BadSpec, IllegalInState

TYPED = ("Cor-Bob_X", " cor-bob_x ", "COR-BOB_X")
BOB = caller("cor-bob_x")


@pytest.mark.parametrize("typed", TYPED)
def test_settings_and_filters_reach_a_user_however_the_name_is_typed(
    stage: Stage, typed: str
) -> None:
    bob = stage.api.acting_for(BOB)
    job = bob.create(SPEC)["id"]
    stage.until(job, State.RUNNING)
    assert [row["id"] for row in stage.api.list({"user": typed})["rows"]] == [job]
    assert stage.api.cost(user=typed)["total"]["jobs"] == 1
    assert stage.api.cost(user=typed, job=job)["total"]["jobs"] == 1
    lab = made(
        budgets={"users": {typed: {"usd": 0.05}}},
        queue={"high": [typed]},
        notifications={"channels": {"ops": {"slack": "X"}}, "rules": [{"channels": ["ops"], "users": [typed]}]},
        service_accounts={typed: "bob@my-lab-1.iam.gserviceaccount.com"},
    )  # fmt: skip
    (rule,) = lab.notifications.channel_rules()
    fact = Notification("k", NotificationKind.FAILED, 0.0, "x", job=job, user=BOB.name)
    assert rule.matches(fact)
    assert list(lab.service_accounts) == [BOB.name]
    stage.reconciler.queue.settings = queue_settings(lab.queue)
    bob.create({**SPEC, "priority": "high"})
    with pytest.raises(BadSpec, match="may not submit jobs of high priority"):
        stage.api.acting_for(caller("eve")).create({**SPEC, "priority": "high"})
    (stage.folder / "paid").mkdir()
    paid = Stage(stage.folder / "paid", budgets=context.budgets(lab))
    with pytest.raises(IllegalInState, match="user cor-bob_x"):
        paid.api.acting_for(BOB).create(SPEC)


@pytest.mark.parametrize("fields", [
    {"budgets": {"users": {"Ada": {"usd": 1}, "ada": {"usd": 2}}}},
    {"service_accounts": {"Ada": "a@b.iam.gserviceaccount.com", "ada": "c@b.iam.gserviceaccount.com"}},
])  # fmt: skip
def test_a_user_who_is_named_twice_is_a_mistake(fields: dict[str, object]) -> None:
    with pytest.raises(BadSpec, match="names 'ada' twice"):
        made(**fields)


def test_a_list_of_members_names_each_once(tmp_path: Path) -> None:
    path = tmp_path / "members.yaml"
    path.write_text("Ada: viewer\nada: admin\n")
    with pytest.raises(BadSpec, match=r"members.yaml:2: ada is named twice"):
        members.read(path)


def test_no_other_letter_becomes_one_of_ascii() -> None:
    with pytest.raises(BadRequest):
        name_of("\u212aim@example.org")  # the sign of the kelvin, whose small letter is k
    with pytest.raises(BadSpec, match="must be a login or an e-mail address, not '\u212aim'"):
        notifications.parse("{channels: {}, rules: [{channels: [], users: [\u212aim]}]}", "n.yaml")


def test_a_login_with_a_dot_is_the_same_name_on_every_stack() -> None:
    assert settings.load(env={"HOME": "/home/x", "LOGNAME": "Cor.Ada"}).user == name_of("cor.ada")
