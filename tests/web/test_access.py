"""Who may do what: the whole matrix of methods, roles and ownership, asked of the service and over HTTP."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import Scope

from tests.support.callers import ADA, caller
from tests.support.http import ask
from tests.support.scripted import listening
from tests.support.stage import SPEC, Stage
from tpujob.api import JobsApi
from tpujob.domain import access
from tpujob.domain.access import SCHEDULER, Principal, Role
from tpujob.domain.members import Member
from tpujob.domain.model import State
from tpujob.errors import BadRequest, Conflict, Forbidden, NotFound, TpujobError
from tpujob.web.api import create_app
from tpujob.web.guard import OPEN_PATHS

BOB, EVE, NOBODY = caller("bob"), caller("eve"), caller("nobody", None)
ROLES = (None, Role.VIEWER, Role.SUBMITTER, Role.ADMIN)

#: The least role for one's own, and for somebody else's. Said again, so that a slip in the table is noticed.
EVERYBODY = ("viewer", "viewer")
MATRIX: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("whoami", "plan", "estimate", "compare", "list", "cost", "ledger"), EVERYBODY),
    **dict.fromkeys(("budgets", "get", "events", "follow"), EVERYBODY),
    **dict.fromkeys(("put_bundle", "create"), ("submitter", "submitter")),
    **dict.fromkeys(("secrets", "set_secret", "remove_secret"), ("submitter", "submitter")),
    **dict.fromkeys(("logs", "diff"), ("viewer", "admin")),
    **dict.fromkeys(("access", "cancel", "resume", "delete", "clean"), ("submitter", "admin")),
    **dict.fromkeys(("hosts", "pin_host", "clear_host", "leaks", "sweep"), ("admin", "admin")),
    **dict.fromkeys(("fsck", "tick"), ("admin", "admin")),
    **dict.fromkeys(("members", "give_role", "remove_member"), ("admin", "admin")),
}
METHODS = sorted(
    name for name, _ in inspect.getmembers(JobsApi, inspect.isfunction) if name[0] != "_"
)
DATA = b"an archive"
SHA = hashlib.sha256(DATA).hexdigest()

#: how each method is called for a job; those that are about no job ignore it
CALLS: dict[str, Callable[[Any, str], Any]] = {
    "plan": lambda api, _: api.plan(SPEC),
    "estimate": lambda api, _: api.estimate(SPEC),
    "compare": lambda api, _: api.compare(SPEC, {}, {"unit": "steps", "amount": 10.0}),
    "put_bundle": lambda api, _: api.put_bundle(SHA, DATA, bucket="gs://tpujob-us-central2"),
    "create": lambda api, _: api.create(SPEC),
    "set_secret": lambda api, _: api.set_secret("HF_TOKEN", "x"),
    "remove_secret": lambda api, _: api.remove_secret("HF_TOKEN"),
    "diff": lambda api, job: api.diff(job, job),
    "access": lambda api, job: api.access(job, key="ssh-ed25519 AAAA"),
    "pin_host": lambda api, _: api.pin_host("rack-1", "bad"),
    "clear_host": lambda api, _: api.clear_host("rack-1"),
    "follow": lambda api, job: next(iter(api.follow(job, timeout=0))),
    "give_role": lambda api, _: api.give_role("zoe", "viewer"),
    "remove_member": lambda api, _: api.remove_member("zoe"),
}
ABOUT_A_JOB = {n for n in METHODS if "job" in inspect.signature(getattr(JobsApi, n)).parameters}
ABOUT_A_JOB = (ABOUT_A_JOB | {"diff"}) - {"cost"}


def call(api: Any, method: str, job: str) -> str:
    """`forbidden`, or `let in`, whatever comes of it then."""
    usual = (lambda api, job: getattr(api, method)(job)) if method in ABOUT_A_JOB else None
    try:
        CALLS.get(method, usual or (lambda api, _: getattr(api, method)()))(api, job)
    except Forbidden:
        return "forbidden"
    except TpujobError:
        pass
    return "let in"


def rank(role: str | None) -> int:
    return [None, "viewer", "submitter", "admin"].index(role)


def expected(method: str, role: Role | None, *, own: bool) -> str:
    least = MATRIX[method][0 if own or method not in ABOUT_A_JOB else 1]
    return "let in" if rank(role) >= rank(least) else "forbidden"


@pytest.fixture
def job(stage: Stage) -> str:
    return stage.api.acting_for(BOB).create(SPEC)["id"]


def test_the_matrix_has_every_method_of_the_api_and_the_table_has_no_other() -> None:
    assert sorted(MATRIX) == sorted([*METHODS, "tick"])
    assert sorted(access.RULES) == sorted(MATRIX)


@pytest.mark.parametrize("method", METHODS)
def test_each_role_may_do_with_its_own_and_with_others_what_the_matrix_says(
    stage: Stage, job: str, method: str
) -> None:
    for role, own in itertools.product(ROLES, (True, False)):
        who = replace(BOB if own else EVE, role=role)
        got = call(stage.api.acting_for(who), method, job)
        assert got == expected(method, role, own=own), (method, role, "own" if own else "others")


@pytest.mark.parametrize("method", sorted(ABOUT_A_JOB))
def test_a_job_of_before_there_were_owners_belongs_to_admins(stage: Stage, method: str) -> None:
    stored = stage.job(stage.create())
    stage.store.commit(
        replace(stored, owner=""), None, expected_version=stored.version, op_id="x", lease=None
    )
    for role in ROLES:
        got = call(stage.api.acting_for(replace(BOB, role=role)), method, stored.id)
        assert got == expected(method, role, own=role is Role.ADMIN), (method, role)


def test_a_method_that_the_table_lacks_is_refused_to_everybody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {name: rule for name, rule in access.RULES.items() if name != "fsck"}
    monkeypatch.setattr(access, "RULES", rules)
    with pytest.raises(Forbidden, match="nobody may call fsck"):
        stage.api.acting_for(ADA).fsck()


# Names, keys and arguments -------------------------------------------------------------------------------------------


def test_a_name_is_the_callers_own_and_anothers_job_needs_its_id(stage: Stage) -> None:
    """Eve's job has ended and Bob's of the same name runs: nothing that Eve types by name reaches Bob's."""
    eve, bob = stage.api.acting_for(EVE), stage.api.acting_for(BOB)
    ended = eve.create(SPEC)["id"]
    eve.cancel(ended)
    stage.until(ended, State.CANCELLED)
    runs = bob.create(SPEC)["id"]
    eve.clean(SPEC["name"])
    stage.step(ended)
    stage.step(runs)
    assert stage.job(runs).wish == "run"
    with pytest.raises(NotFound):
        stage.job(ended)
    with pytest.raises(NotFound, match="no job of yours is called 'digits'"):
        eve.delete(SPEC["name"])
    with pytest.raises(Forbidden):
        eve.delete(runs)


def test_a_live_job_is_not_mistaken_for_one_that_has_ended_where_something_is_lost(
    stage: Stage,
) -> None:
    bob = stage.api.acting_for(BOB)
    ended = bob.create(SPEC)["id"]
    bob.cancel(ended)
    stage.until(ended, State.CANCELLED)
    live = bob.create(SPEC)["id"]
    assert bob.get(SPEC["name"])["id"] == live
    for lose in (bob.delete, bob.clean):
        with pytest.raises(BadRequest, match=f"2 jobs are called 'digits': {live}, {ended}"):
            lose(SPEC["name"])


def test_a_key_is_its_owners_and_of_one_spec(stage: Stage) -> None:
    bob, eve = stage.api.acting_for(BOB), stage.api.acting_for(EVE)
    first = bob.create(SPEC, idempotency_key="k")
    assert bob.create(SPEC, idempotency_key="k")["id"] == first["id"]
    assert eve.create(SPEC, idempotency_key="k")["id"] != first["id"]
    with pytest.raises(Conflict, match="another spec"):
        bob.create({**SPEC, "name": "else"}, idempotency_key="k")


def test_a_bundle_of_another_user_can_be_neither_named_nor_compared(stage: Stage) -> None:
    bob, eve = stage.api.acting_for(BOB), stage.api.acting_for(EVE)
    path = bob.put_bundle(SHA, DATA, bucket="gs://tpujob-us-central2")
    assert path.startswith("gs://tpujob-us-central2/u/bob/bundles/")
    for stolen in (path, path.replace("/bob/", "/eve/../bob/"), path.replace("u/bob", "u/eve/x")):
        with pytest.raises(BadRequest, match="bundles must lie in"):
            eve.create(SPEC, bundles=[stolen])
    mine, theirs = eve.create(SPEC)["id"], bob.create(SPEC)["id"]
    for a, b in ((mine, theirs), (theirs, mine)):
        with pytest.raises(Forbidden):
            eve.diff(a, b)


def test_others_see_a_job_without_what_its_owner_keeps_to_himself(stage: Stage) -> None:
    spec = {**SPEC, "run": {"command": "python3 secret.py", "env": {"KEY": "hunter2"}}}
    job = stage.api.acting_for(BOB).create(spec)["id"]
    for who, sees in (
        (BOB, True),
        (ADA, True),
        (EVE, False),
        (replace(EVE, role=Role.VIEWER), False),
    ):
        api = stage.api.acting_for(who)
        shown = json.dumps([api.get(job), *api.list()])
        assert ("secret.py" in shown) is sees, who
        assert ("/jobs/" in shown) is sees, who
        assert api.get(job)["spec"]["tpu"] == stage.api.get(job)["spec"]["tpu"]


def test_each_user_has_a_folder_of_their_own_in_the_bucket(stage: Stage) -> None:
    who = Principal("google:1", "Ada.Byron@Example.org", Role.SUBMITTER)
    job = stage.api.acting_for(who).create(SPEC)
    assert job["workdir"] == f"gs://tpujob-us-central2/u/ada.byron-at-example.org/jobs/{job['id']}"


def test_every_wish_says_by_whom(stage: Stage) -> None:
    bob, ada = stage.api.acting_for(BOB), stage.api.acting_for(ADA)
    job = bob.create(SPEC)["id"]
    stage.until(job, State.RUNNING)
    ada.cancel(job)
    told = {e["kind"]: e["by"] for e in bob.events(job)}
    assert (told["created"], told["cancel_requested"]) == ("bob", "ada")
    assert told["slice_requested"] == "", "the backend did it by itself"


# Members -------------------------------------------------------------------------------------------------------------


def test_whoever_is_removed_is_a_stranger_at_once_and_nobody_takes_their_place(
    stage: Stage,
) -> None:
    from tpujob.service.members import Membership

    lab = Membership(stage.store.members)
    ada = stage.api.acting_for(ADA)
    with pytest.raises(Forbidden, match=r"bob@example\.org is not a member"):
        lab.recognise("google:7", "bob@example.org")
    ada.give_role("Bob@Example.org", "submitter")
    assert lab.recognise("google:7", "bob@example.org").role is Role.SUBMITTER
    assert lab.recognise("google:7", "robert@example.org").name == "bob@example.org", (
        "an address may change, its owner does not"
    )
    with pytest.raises(Forbidden, match="somebody else"):
        lab.recognise("google:8", "bob@example.org")
    ada.remove_member("bob@example.org")
    with pytest.raises(Forbidden):
        lab.recognise("google:7", "bob@example.org")
    assert ada.members() == []


@pytest.mark.parametrize(
    ("name", "role", "says"),
    [
        ("bob", "root", "'root' is no role"),
        ("bob", "", "'' is no role"),
        ("bob\nevil", "viewer", "is no name of a member"),
        ("", "viewer", "is no name of a member"),
        ("b@b@b", "viewer", "is no name of a member"),
        ("a" * 300, "viewer", "is no name of a member"),
    ],
)
def test_what_can_be_no_member_is_refused(stage: Stage, name: str, role: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        stage.api.give_role(name, role)
    assert stage.api.members() == []


def test_nobody_shuts_themselves_out(stage: Stage) -> None:
    stage.store.members.change("ada", lambda _: Member("ada", Role.ADMIN, ADA.id))
    for shut in (
        lambda: stage.api.remove_member("ada"),
        lambda: stage.api.give_role("ada", "viewer"),
    ):
        with pytest.raises(BadRequest):
            shut()
    assert stage.api.members()[0]["role"] == "admin"


# Over HTTP -----------------------------------------------------------------------------------------------------------


class ByHeader:
    """Believes a header: for tests of what comes after the door."""

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        del scope
        who = json.loads(headers["x-who"])
        return Principal(who["id"], who["name"], Role(who["role"]) if who["role"] else None)


#: by path and verb, the one method that each route asks for
ROUTES = {
    "GET /v1/jobs": "list", "POST /v1/jobs": "create", "GET /v1/cost": "cost", "GET /v1/ledger": "ledger",
    "GET /v1/budgets": "budgets", "POST /v1/plan": "plan", "POST /v1/estimate": "estimate",
    "GET /v1/secrets": "secrets", "PUT /v1/secrets/{name}": "set_secret",
    "DELETE /v1/secrets/{name}": "remove_secret", "POST /v1/compare": "compare",
    "PUT /v1/bundles/{sha256}": "put_bundle", "GET /v1/jobs/{job}": "get",
    "GET /v1/jobs/{job}/events": "events", "GET /v1/jobs/{job}/logs": "logs", "GET /v1/diff": "diff",
    "POST /v1/jobs/{job}/access": "access", "POST /v1/jobs/{job}/cancel": "cancel",
    "POST /v1/jobs/{job}/resume": "resume", "POST /v1/jobs/{job}/delete": "delete",
    "POST /v1/jobs/{job}/clean": "clean", "GET /v1/hosts": "hosts", "POST /v1/hosts/pin": "pin_host",
    "POST /v1/hosts/clear": "clear_host", "GET /v1/members": "members", "PUT /v1/members": "give_role",
    "DELETE /v1/members": "remove_member", "GET /v1/leaks": "leaks", "POST /v1/sweep": "sweep",
    "GET /v1/fsck": "fsck", "GET /v1/follow": "follow", "POST /v1/tick": "tick", "GET /v1/whoami": "whoami",
}  # fmt: skip
#: that everybody who is known at all may ask
FREE = {"GET /v1/version", "GET /docs", "HEAD /docs", "GET /openapi.json", "HEAD /openapi.json"}
BODIES: dict[str, Any] = {
    "create": {"spec": SPEC}, "plan": {"spec": SPEC}, "estimate": {"spec": SPEC}, "compare": {"spec": SPEC},
    "pin_host": {"physical": "x", "verdict": "bad"}, "clear_host": {"physical": "x"},
    "give_role": {"name": "zoe", "role": "viewer"}, "set_secret": {"value": "x"},
    "access": {"key": "ssh-ed25519 AAAA"},
}  # fmt: skip


@pytest.fixture
def url(stage: Stage) -> Iterator[str]:
    with listening(create_app(stage.api.acting_for, ByHeader())) as url:
        yield url


def test_every_route_asks_for_one_method_of_the_table() -> None:
    app = create_app(lambda _: None, ByHeader())  # type: ignore[arg-type, return-value]
    found = {
        f"{verb} {getattr(route, 'path', '')}"
        for route in app.routes
        for verb in getattr(route, "methods", ())
        if getattr(route, "path", "") not in OPEN_PATHS
    }
    assert found - FREE == set(ROUTES), "a new route is closed until it is in this list"
    assert any(isinstance(route, APIRoute) for route in app.routes)
    assert set(ROUTES.values()) == set(MATRIX)


@pytest.mark.parametrize("route", ROUTES)
def test_each_route_lets_in_whom_the_matrix_lets_in(
    stage: Stage, job: str, url: str, route: str
) -> None:
    method = ROUTES[route]
    verb, path = route.split(" ")
    path = path.replace("{job}", job).replace("{sha256}", SHA).replace("{name}", "HF_TOKEN")
    query = {
        "diff": f"?a={job}&b={job}",
        "follow": f"?job={job}&timeout=0",
        "put_bundle": "?bucket=gs://tpujob-us-central2",
        "remove_member": "?name=zoe",
    }.get(method, "")
    body = DATA if method == "put_bundle" else json.dumps(BODIES.get(method, {})).encode()
    for role, own in itertools.product(ROLES, (True, False)):
        who = replace(BOB if own else EVE, role=role)
        headers = {
            "X-Who": json.dumps({"id": who.id, "name": who.name, "role": who.role}),
            "Content-Type": "application/json",
        }
        status, _, answer = ask(url, verb, path + query, headers, body if verb != "GET" else None)
        let_in = expected(method, role, own=own) == "let in"
        assert (status != 403) is let_in, (route, role, own, status, answer)
        assert status < 500, (route, status, answer)


def test_the_scheduler_may_make_passes_and_nothing_else(stage: Stage, url: str) -> None:
    who = {"X-Who": json.dumps({"id": SCHEDULER.id, "name": SCHEDULER.name, "role": None})}
    for route, method in ROUTES.items():
        verb, path = route.split(" ")
        body = json.dumps(BODIES.get(method, {})).encode()
        path = (
            path.replace("{job}", "1").replace("{sha256}", SHA) + "?a=1&b=1&bucket=gs://b&name=zoe"
        )
        headers = who | {"Content-Type": "application/json"}
        status, _, _ = ask(url, verb, path, headers, body if verb != "GET" else None)
        assert (status == 403) is (method != "tick"), (route, status)


def test_a_file_of_members_names_every_line_that_is_wrong(tmp_path: Path) -> None:
    from tpujob.config.members import read
    from tpujob.errors import BadSpec

    file = tmp_path / "lab.yaml"
    file.write_text("ada: admin\nbob: root\n'eve x': viewer\n")
    with pytest.raises(BadSpec) as raised:
        read(file)
    first, second = raised.value.message.splitlines()
    assert first.startswith(f"{file}:2: 'root' is no role")
    assert second.startswith(f"{file}:3: 'eve x' is no name of a member")
    file.write_text("ada: admin\nBob@Example.org: viewer\n")
    assert read(file) == {"ada": Role.ADMIN, "bob@example.org": Role.VIEWER}
