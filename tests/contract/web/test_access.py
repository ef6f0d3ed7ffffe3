"""The whole matrix of methods, roles and ownership, asked over HTTP."""

import hashlib
import inspect
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import Scope

from tests.support.bundles import bundle_of
from tests.support.callers import ADA, caller
from tests.support.http import ask
from tests.support.scripted import LIMITLESS, listening
from tests.support.stage import SPEC, Stage
from tests.support.world import Inline
from tests.unit.notify.rig import Notes
from tpujob.api import JobsApi
from tpujob.domain.access import SCHEDULER, Principal, Role
from tpujob.domain.members import Member
from tpujob.domain.model import State
from tpujob.domain.notifications import messages
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import Notification, NotificationKind
from tpujob.domain.notifications.rules import ChannelRule
from tpujob.engine.notification_collector import Channel, NotificationSetup
from tpujob.engine.notifier import Notifier
from tpujob.errors import BadRequest, Conflict, Forbidden, NotFound
from tpujob.service import Membership, authorization
from tpujob.service.jobs import Jobs
from tpujob.web.api import create_app
from tpujob.web.security.middleware import OPEN_PATHS

BOB, EVE = caller("bob"), caller("eve")
ROLES = (None, *Role)

#: The least role for one's own, and for that of another user. Stated again, so that a slip in the table is noticed.
EVERYBODY = ("viewer", "viewer")
MATRIX: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("whoami", "plan", "estimate", "compare", "reached", "list", "cost", "ledger"), EVERYBODY
    ),
    **dict.fromkeys(
        ("budgets", "happened", "capacity", "get", "events", "metrics", "curves", "follow"),
        EVERYBODY,
    ),
    **dict.fromkeys(("health", "backend_metrics"), EVERYBODY),
    **dict.fromkeys(("put_bundle", "create"), ("submitter", "submitter")),
    **dict.fromkeys(("secrets", "set_secret", "remove_secret"), ("submitter", "submitter")),
    **dict.fromkeys(("logs", "log_block", "log_window", "diff", "patch"), ("viewer", "admin")),
    **dict.fromkeys(("log_search", "outputs", "read_files"), ("viewer", "admin")),
    **dict.fromkeys(
        ("access", "write_files", "cancel", "resume", "delete", "clean"), ("submitter", "admin")
    ),
    **dict.fromkeys(("queue", "shares"), EVERYBODY),
    **dict.fromkeys(("hold", "release", "top", "requeue", "annotate"), ("submitter", "admin")),
    **dict.fromkeys(("hosts", "pin_host", "clear_host", "leaks", "sweep"), ("admin", "admin")),
    **dict.fromkeys(("fsck", "tick"), ("admin", "admin")),
    **dict.fromkeys(("channels", "deliveries"), EVERYBODY),
    "test_channel": ("admin", "admin"),
    "set_channel_secret": ("admin", "admin"),
    **dict.fromkeys(("members", "give_role", "remove_member"), ("admin", "admin")),
}
METHODS = sorted(
    name for name, _ in inspect.getmembers(JobsApi, inspect.isfunction) if name[0] != "_"
)
DATA = bundle_of("code")
SHA = hashlib.sha256(DATA).hexdigest()

ABOUT_A_JOB = {n for n in METHODS if "job" in inspect.signature(getattr(JobsApi, n)).parameters}
ABOUT_A_JOB = (ABOUT_A_JOB | {"diff"}) - {"cost"}


def allowed(method: str, role: Role | None, *, own: bool) -> bool:
    least = MATRIX[method][0 if own or method not in ABOUT_A_JOB else 1]
    return ROLES.index(role) >= ROLES.index(Role(least))


@pytest.fixture
def job(stage: Stage) -> str:
    return stage.api.acting_for(BOB).create(SPEC)["id"]


def test_the_matrix_has_every_method_of_the_api_and_the_table_has_no_other() -> None:
    assert sorted(MATRIX) == sorted([*METHODS, "tick"])
    assert sorted(authorization.RULES) == sorted(MATRIX)


def test_unlisted_methods_are_refused_to_all(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {name: rule for name, rule in authorization.RULES.items() if name != "fsck"}
    monkeypatch.setattr(authorization, "RULES", rules)
    with pytest.raises(Forbidden, match="no access rule allows fsck"):
        stage.api.acting_for(ADA).fsck()


def test_a_refusal_names_the_command(stage: Stage, job: str) -> None:
    has = "bob has the role submitter"
    eve, bob = stage.api.acting_for(EVE), stage.api.acting_for(BOB)
    text = f"`tpujob logs` of job {job}, which is not eve's, needs the role admin: eve has the role submitter"
    for ask_for in (eve.logs, eve.log_block, eve.log_window):
        with pytest.raises(Forbidden) as refused:
            ask_for(job)
        assert refused.value.message == text
    with pytest.raises(Forbidden) as refused:
        bob.give_role("eve", "admin")
    assert refused.value.message == f"`tpujob members add` needs the role admin: {has}"


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
    assert stage.job(runs).desired == "run"
    with pytest.raises(NotFound):
        stage.job(ended)
    with pytest.raises(NotFound, match="no job of yours is called 'digits'"):
        eve.delete(SPEC["name"])
    with pytest.raises(Forbidden):
        eve.delete(runs)


def test_a_live_job_is_not_taken_for_an_ended_one_where_something_is_lost(stage: Stage) -> None:
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


def test_the_millionth_job_is_found_by_its_id(stage: Stage) -> None:
    stage.create()
    with sqlite3.connect(stage.folder / "tpujob.db") as db:
        db.execute("UPDATE sqlite_sequence SET seq = 999999 WHERE name = 'jobs'")
    job = stage.create()
    assert stage.api.get("1000000")["id"] == job == "1000000"


def test_a_bundle_of_another_user_can_be_neither_named_nor_compared(stage: Stage) -> None:
    bob, eve = stage.api.acting_for(BOB), stage.api.acting_for(EVE)
    path = bob.put_bundle(SHA, DATA, bucket="gs://tpujob-us-central2")
    assert path.startswith("gs://tpujob-us-central2/u/bob/bundles/")
    for stolen in (path, path.replace("/bob/", "/eve/../bob/"), path.replace("u/bob", "u/eve/x")):
        with pytest.raises(BadRequest, match="bundles must be in"):
            eve.create(SPEC, bundles=[stolen])
    mine, theirs = eve.create(SPEC)["id"], bob.create(SPEC)["id"]
    for a, b in ((mine, theirs), (theirs, mine)):
        with pytest.raises(Forbidden):
            eve.diff(a, b)


def test_others_see_a_job_without_what_its_owner_keeps_to_himself(stage: Stage) -> None:
    spec = {**SPEC, "run": {"command": "python3 secret.py", "env": {"KEY": "hunter2"}}}
    job = stage.api.acting_for(BOB).create(spec)["id"]
    for user, sees in (
        (BOB, True),
        (ADA, True),
        (EVE, False),
        (replace(EVE, role=Role.VIEWER), False),
    ):
        api = stage.api.acting_for(user)
        shown = json.dumps([api.get(job), *api.list()["rows"]])
        assert ("secret.py" in shown) is sees, user
        assert ("/jobs/" in shown) is sees, user
        assert api.get(job)["spec"]["tpu"] == stage.api.get(job)["spec"]["tpu"]


def test_each_user_has_a_folder_of_their_own_in_the_bucket(stage: Stage) -> None:
    user = Principal("google:1", "Ada.Byron@Example.org", Role.SUBMITTER)
    job = stage.api.acting_for(user).create(SPEC)
    assert job["workdir"] == f"gs://tpujob-us-central2/u/ada.byron-at-example.org/jobs/{job['id']}"


def test_every_wish_says_by_whom(stage: Stage) -> None:
    bob, ada = stage.api.acting_for(BOB), stage.api.acting_for(ADA)
    job = bob.create(SPEC)["id"]
    stage.until(job, State.RUNNING)
    ada.cancel(job)
    authors = {e["kind"]: e["by"] for e in bob.events(job)}
    assert (authors["created"], authors["cancel_requested"]) == ("bob", "ada")
    assert authors["slice_requested"] == "", "the backend did it by itself"


# Members -------------------------------------------------------------------------------------------------------------


def test_a_removed_member_is_a_stranger_at_once_and_has_no_successor(stage: Stage) -> None:
    lab = Membership(stage.store.members, stage.store, stage.secrets)
    ada = stage.api.acting_for(ADA)
    with pytest.raises(Forbidden, match=r"bob@example\.org is not a member"):
        lab.recognise("google:7", "bob@example.org")
    ada.give_role("Bob@Example.org", "submitter")
    assert lab.recognise("google:7", "bob@example.org").role is Role.SUBMITTER
    assert lab.recognise("google:7", "robert@example.org").name == "bob@example.org", (
        "an address may change, its owner does not"
    )
    with pytest.raises(Forbidden, match="had another id"):
        lab.recognise("google:8", "bob@example.org")
    ada.remove_member("bob@example.org")
    with pytest.raises(Forbidden):
        lab.recognise("google:7", "bob@example.org")
    assert ada.members() == []


@pytest.mark.parametrize(
    ("name", "role", "says"),
    [
        ("bob", "root", "'root' is not a role"),
        ("bob", "", "'' is not a role"),
        ("bob\nevil", "viewer", "is not the name of a member"),
        ("", "viewer", "is not the name of a member"),
        ("b@b@b", "viewer", "is not the name of a member"),
        ("a" * 300, "viewer", "is not the name of a member"),
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
        user = json.loads(headers["x-who"])
        return Principal(user["id"], user["name"], Role(user["role"]) if user["role"] else None)


#: by path and verb, the one method that each route asks for
ROUTES = {
    "GET /v1/jobs": "list", "POST /v1/jobs": "create", "GET /v1/cost": "cost", "GET /v1/ledger": "ledger",
    "GET /v1/events": "happened", "GET /v1/capacity": "capacity",
    "GET /v1/budgets": "budgets", "GET /v1/reached": "reached", "POST /v1/plan": "plan",
    "POST /v1/estimate": "estimate",
    "GET /v1/secrets": "secrets", "PUT /v1/secrets/{name}": "set_secret",
    "DELETE /v1/secrets/{name}": "remove_secret", "POST /v1/compare": "compare",
    "PUT /v1/bundles/{sha256}": "put_bundle", "GET /v1/jobs/{job}": "get",
    "GET /v1/jobs/{job}/events": "events", "GET /v1/jobs/{job}/logs": "logs", "GET /v1/diff": "diff",
    "GET /v1/jobs/{job}/logs/block": "log_block", "GET /v1/jobs/{job}/logs/window": "log_window",
    "GET /v1/jobs/{job}/logs/search": "log_search",
    "GET /v1/jobs/{job}/metrics": "metrics", "GET /v1/jobs/{job}/patch": "patch",
    "GET /v1/jobs/{job}/outputs": "outputs",
    "POST /v1/jobs/{job}/files/read": "read_files", "POST /v1/jobs/{job}/files/write": "write_files",
    "POST /v1/jobs/{job}/access": "access", "POST /v1/jobs/{job}/cancel": "cancel",
    "POST /v1/jobs/{job}/resume": "resume", "POST /v1/jobs/{job}/delete": "delete",
    "POST /v1/jobs/{job}/hold": "hold", "POST /v1/jobs/{job}/release": "release",
    "POST /v1/jobs/{job}/top": "top", "POST /v1/jobs/{job}/requeue": "requeue",
    "POST /v1/jobs/{job}/annotate": "annotate",
    "GET /v1/queue": "queue", "GET /v1/shares": "shares",
    "POST /v1/jobs/{job}/clean": "clean", "GET /v1/hosts": "hosts", "POST /v1/hosts/pin": "pin_host",
    "POST /v1/hosts/clear": "clear_host", "GET /v1/members": "members", "PUT /v1/members": "give_role",
    "DELETE /v1/members": "remove_member", "GET /v1/leaks": "leaks", "POST /v1/sweep": "sweep",
    "GET /v1/fsck": "fsck", "GET /v1/follow": "follow", "POST /v1/tick": "tick", "GET /v1/whoami": "whoami",
    "GET /v1/channels": "channels", "GET /v1/deliveries": "deliveries",
    "POST /v1/channels/{channel}/test": "test_channel", "PUT /v1/channel-secrets/{name}": "set_channel_secret",
    # pages, and their twins
    "GET /jobs/{job}/logs": "log_window", "GET /jobs/{job}/logs.json": "log_window",
    "GET /jobs/{job}/logs.txt": "log_block", "GET /jobs/{job}/logs.txt.gz": "log_block",
    "GET /": "list", "GET /jobs.json": "list",
    **{f"GET /jobs/{{job}}{below}{twin}": method
       for below, method in (("", "get"), ("/metrics", "metrics"), ("/spec", "get"), ("/code", "patch"))
       for twin in ("", ".json")},
    "GET /v1/curves": "curves", "GET /compare": "curves", "GET /compare.json": "curves",
    "GET /spend.csv": "cost", "GET /diff": "diff", "GET /diff.json": "diff", "POST /hosts": "pin_host",
    **{f"GET /{page}{twin}": method
       for page, method in (("capacity", "capacity"), ("queue", "queue"), ("hosts", "hosts"), ("spend", "cost"),
                            ("events", "happened"))
       for twin in ("", ".json")},
    **{f"{verb} /jobs/{{job}}/{action}": action.removesuffix(".json")
       for name in ("cancel", "resume", "delete", "clean")
       for verb, action in (("GET", name), ("GET", f"{name}.json"), ("POST", name))},
    "GET /backend": "health", "GET /backend.json": "health", "GET /v1/health": "health",
    "GET /metrics": "backend_metrics", "GET /v1/metrics": "backend_metrics",
    "GET /notifications": "channels", "GET /notifications.json": "channels",
    "POST /notifications/test": "test_channel",
}  # fmt: skip
#: pages about many jobs at once: a role that may not do it to any is refused, each job says for itself why not
MANY = {
    f"{verb} /{path}/{action}{twin}": action
    for action in ("cancel", "resume", "delete", "clean")
    for verb, path, twin in (
        ("GET", "confirm", ""),
        ("GET", "confirm", ".json"),
        ("POST", "do", ""),
    )
}
#: that everybody who is known at all may ask
FREE = {
    "GET /v1/version", "GET /openapi.json", "HEAD /openapi.json",
    "GET /static/{name}",
}  # fmt: skip
BODIES: dict[str, Any] = {
    "create": {"spec": SPEC}, "plan": {"spec": SPEC}, "estimate": {"spec": SPEC}, "compare": {"spec": SPEC},
    "pin_host": {"physical": "x", "verdict": "bad"}, "clear_host": {"physical": "x"},
    "give_role": {"name": "zoe", "role": "viewer"}, "set_secret": {"value": "x"},
    "set_channel_secret": {"value": "x"},
    "access": {"key": "ssh-ed25519 AAAA"},
}  # fmt: skip


#: what a page sends
FORM = b"channel=lab&id=msg_1700000000000_lab_1"


@pytest.fixture(scope="module")
def backend() -> Iterator[tuple[Callable[[Jobs], None], str]]:
    """One server for all that is asked, and what gives it the jobs of the test that runs."""
    now: list[Jobs] = []
    app = create_app(lambda caller: now[-1].acting_for(caller), ByHeader(), limits=LIMITLESS)
    with listening(app) as url:
        yield now.append, url


@pytest.fixture
def url(stage: Stage, backend: tuple[Callable[[Jobs], None], str]) -> str:
    serve, url = backend
    serve(stage.api)
    return url


def test_every_route_asks_for_one_method_of_the_table() -> None:
    app = create_app(lambda _: None, ByHeader())  # type: ignore[arg-type, return-value]
    addresses = {
        f"{verb} {getattr(route, 'path', '')}"
        for route in app.routes
        for verb in getattr(route, "methods", ())
        if getattr(route, "path", "") not in OPEN_PATHS
    }
    assert addresses - FREE - set(MANY) == set(ROUTES), "a new route is closed until it is here"
    assert any(isinstance(route, APIRoute) for route in app.routes)
    assert set(ROUTES.values()) == set(MATRIX)


#: by method, what its address names beside the job
QUERIES = {
    "curves": "?jobs={job}",
    "diff": "?a={job}&b={job}",
    "follow": "?job={job}&timeout=0",
    "put_bundle": "?bucket=gs://tpujob-us-central2",
    "remove_member": "?name=zoe",
}


def ask_route(url: str, route: str, job: str, user: Principal) -> int:
    """The status that they get there; what is wrong for another reason is not 403."""
    method = ROUTES[route]
    verb, path = route.split(" ")
    form = not path.startswith("/v1/")
    path = (path + QUERIES.get(method, "")).format(
        job=job, sha256=SHA, name="HF_TOKEN", channel="lab"
    )
    body = DATA if method == "put_bundle" else json.dumps(BODIES.get(method, {})).encode()
    headers = {
        "X-Who": json.dumps({"id": user.id, "name": user.name, "role": user.role}),
        "Content-Type": "application/x-www-form-urlencoded" if form else "application/json",
    }
    status, _, answer = ask(
        url, verb, path, headers, None if verb == "GET" else FORM if form else body
    )
    assert status < 500, (route, status, answer)
    return status


@pytest.mark.parametrize("route", ROUTES)
def test_each_route_agrees_with_the_matrix(stage: Stage, job: str, url: str, route: str) -> None:
    for role, own in itertools.product(ROLES, (True, False)):
        status = ask_route(url, route, job, replace(BOB if own else EVE, role=role))
        assert (status != 403) is allowed(ROUTES[route], role, own=own), (route, role, own, status)


def test_a_job_of_before_there_were_owners_belongs_to_admins(stage: Stage, url: str) -> None:
    stored = stage.job(stage.create())
    stage.store.commit(
        replace(stored, owner=""), None, expected_version=stored.version, op_id="x", lease=None
    )
    for route, role in itertools.product(ROUTES, ROLES):
        method = ROUTES[route]
        if "{job}" in route + QUERIES.get(method, ""):
            status = ask_route(url, route, stored.id, replace(BOB, role=role))
            let_in = allowed(method, role, own=role is Role.ADMIN)
            assert (status != 403) is let_in, (route, role, status)


@pytest.mark.parametrize("route", MANY)
def test_whoever_may_steer_no_job_steers_no_list_of_them(url: str, route: str) -> None:
    verb, path = route.split(" ")
    form = {"Content-Type": "application/x-www-form-urlencoded"} if verb == "POST" else {}
    for role in ("viewer", None):
        identity = {"X-Who": json.dumps({"id": "test:eve", "name": "eve", "role": role})}
        data = ("", b"job=1") if verb == "POST" else ("?job=1", None)
        status, _, _ = ask(url, verb, path + data[0], identity | form, data[1])
        assert status == 403, (route, role)


def test_the_scheduler_may_make_passes_and_nothing_else(job: str, url: str) -> None:
    for route, method in ROUTES.items():
        assert (ask_route(url, route, job, SCHEDULER) == 403) is (method != "tick"), route


# The text of errors --------------------------------------------------------------------------------------------------

MARK = "PRIVATE-detail"
ERROR = ("Traceback (most recent call last):", '  File "t.py", line 3', f"ValueError: {MARK} {{x}}")
DAN = caller("dan", Role.VIEWER)


def bobs_jobs_with_errors(stage: Stage) -> list[str]:
    """One failed, one starts again, one was judged by its program, and one is about to end, as a host reported."""
    bob = stage.api.acting_for(BOB)
    ids: list[str] = []
    for name, failures in (("crashed", 0), ("retried", 3), ("judged", 3), ("ending", 3)):
        spec = {**SPEC, "name": name, "recovery": {"failures": failures}}
        ids.append(bob.create(spec)["id"])
        stage.running(ids[-1])
        match name:
            case "judged":
                verdict = {"step": 4, "host": 1, "device": "", "blame": "data", "text": MARK}
                for host in range(2):
                    facts = {"phase": "exited", "exit_code": 65, "verdict": verdict}
                    stage.report(ids[-1], host, **facts)
                stage.until(ids[-1], State.FAILED)
            case "ending":
                facts = {"phase": "exited", "exit_code": 0, "error": MARK, "cause": "CRASH"}
                stage.report(ids[-1], 0, **facts)
                stage.report(ids[-1], 1, phase="running")
                stage.step(ids[-1])
            case _:
                stage.finish(ids[-1], 1, 1)
                for host in range(2):
                    stage.last_words(ids[-1], host, *ERROR)
                state = State.FAILED if failures == 0 else State.PREPARING
                stage.until(ids[-1], state)
    return ids


def test_the_text_of_an_error_is_shown_on_no_route_to_others(stage: Stage) -> None:
    """Others read its class and the exit code."""
    sink = Notes()
    stage.setup = NotificationSetup({"lab": Channel("slack", "x", sink)}, (ChannelRule(("lab",)),))
    tells = Notifier(
        stage.store, stage.store.outbox, stage.setup, stage.clock, owner="n", pool=Inline()
    )
    tells.step()
    ids = bobs_jobs_with_errors(stage)
    crashed, retried, judged = ids[:3]
    for _ in range(20):
        stage.clock.sleep(60)
        tells.step()
    assert MARK in str([messages.lines(message) for message in sink.got]), "channels get it in full"
    # as an older version has left it
    old = Notification(
        "k", NotificationKind.FAILED, 1.0, MARK, crashed, "old", "bob", 1, "CRASH", lines=(MARK,)
    )
    stage.store.outbox.add([replace(message_for("lab", old), at=stage.clock.now(), due=None)])

    jobs = stage.api
    app = create_app(jobs.acting_for, ByHeader(), limits=LIMITLESS)
    app.state.now = stage.clock.now
    lab = "/?who=everyone"
    paths = [path for verb, path in map(str.split, ROUTES) if verb == "GET"]
    paths += [lab, "/jobs.json?who=everyone"]
    every = sorted({path.replace("{job}", job) for path in paths for job in ids})
    pair = f"?a={crashed}&b={retried}"
    query = {"/v1/follow": f"?job={crashed}&timeout=0", "/v1/diff": pair, "/diff": pair}

    def header(user: Principal) -> dict[str, str]:
        return {"x-who": json.dumps({"id": user.id, "name": user.name, "role": user.role})}

    with listening(app) as url, httpx.Client() as client:

        def read(path: str, user: Principal) -> str:
            answer = client.get(url + path + query.get(path, ""), headers=header(user))
            assert answer.status_code in (200, 400, 403, 404), (path, answer.text)
            return answer.text

        for user in (BOB, ADA):
            seen = {row["name"]: row["why"] for row in json.loads(read("/v1/jobs", user))["rows"]}
            full = f"ValueError: {MARK} {{x}} (host 0: exit code 1)"
            assert seen["crashed"] == full
            assert seen["retried"].startswith(f"attempt 1 ended, CRASH: {full}; starting again")
            assert seen["judged"] == f"{MARK} (exit code 65)"
            for path in (*(f"/v1/jobs/{job}" for job in ids), f"/v1/jobs/{crashed}/events"):
                assert MARK in read(path, user), (path, user)
            for path in (f"/jobs/{crashed}", "/v1/deliveries"):
                assert MARK in read(path, user), (path, user)
        for path, user in (("/", BOB), (lab, ADA), ("/v1/events", ADA)):
            assert MARK in read(path, user), (path, user)
        ends = [e for e in json.loads(read("/v1/events", ADA))["events"] if e["kind"] == "failed"]
        assert [MARK in end["text"] for end in ends] == [True, True], "the end of a job repeats it"
        for path, user in itertools.product(every, (EVE, DAN)):
            assert MARK not in read(path, user), (path, user)
        view = json.loads(read(f"/v1/jobs/{crashed}", EVE))
        plain = "ValueError (host 0: exit code 1)"
        assert view["attempts"][0]["message"] == plain
        assert view["why"].startswith(f"attempt 1 ended, CRASH: {plain}; no retry is allowed")
        assert [
            e["text"] for e in json.loads(read("/v1/events", EVE))["events"] if plain in e["text"]
        ]
        judgement = json.loads(read(f"/v1/jobs/{judged}", EVE))["attempts"][0]
        assert (judgement["verdict"]["step"], judgement["verdict"]["text"]) == (4, "")
        rows = {row["name"]: row["why"] for row in json.loads(read("/v1/jobs", EVE))["rows"]}
        assert rows["crashed"] == plain
        texts = [delivery["lines"] for delivery in json.loads(read("/v1/deliveries", EVE))]
        assert any(plain in line for lines in texts for line in lines)
        assert [f"old ({crashed}) of bob: CRASH"] in texts


def test_a_file_of_members_names_every_line_that_is_wrong(tmp_path: Path) -> None:
    from tpujob.config.members import read
    from tpujob.errors import BadSpec

    file = tmp_path / "lab.yaml"
    file.write_text("ada: admin\nbob: root\n'eve x': viewer\n")
    with pytest.raises(BadSpec) as raised:
        read(file)
    first, second = raised.value.message.splitlines()
    assert first.startswith(f"{file}:2: 'root' is not a role")
    assert second.startswith(f"{file}:3: 'eve x' is not the name of a member")
    file.write_text("ada: admin\nBob@Example.org: viewer\n")
    assert read(file) == {"ada": Role.ADMIN, "bob@example.org": Role.VIEWER}
