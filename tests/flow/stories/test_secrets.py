"""Secrets and shipped code in the life of a job: who gets a value, when a job is refused, what cleaning removes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bundles import bundle_of
from tests.support.callers import ADA, caller
from tests.support.stage import SPEC, Stage
from tpujob.domain.access import Role
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Cause, State
from tpujob.errors import BadRequest, BadSpec, IllegalInState, NotFound, StoreError, Transient
from tpujob.service.jobs import Jobs

BOB = caller("bob", Role.SUBMITTER)
CANARY = "canary-4711-value"
RUN = {"command": "python3 train.py", "secrets": ["WANDB_API_KEY"]}
KEYS: dict[str, Any] = {**SPEC, "run": RUN}


# Passed to programs --------------------------------------------------------------------------------------------------


def test_hosts_get_the_values_and_no_record_has_one(stage: Stage) -> None:
    started: list[HostPlan] = []
    start = stage.hosts.start
    stage.hosts.start = lambda slice, plans, *, timeout: (  # pyright: ignore[reportAttributeAccessIssue]
        started.extend(plans),
        start(slice, plans, timeout=timeout),
    )[1]
    stage.api.set_secret("WANDB_API_KEY", "an older value")
    job_id = stage.create(run=RUN)
    stage.api.set_secret("WANDB_API_KEY", CANARY)
    stage.running(job_id)
    assert [plan.secrets for plan in started] == [{"WANDB_API_KEY": CANARY}] * 2
    assert CANARY not in repr(started), "a log of a plan would show it"
    assert CANARY not in json.dumps([plan.document for plan in started])
    shown = [stage.api.get(job_id), stage.api.events(job_id), stage.api.secrets()]
    assert CANARY not in json.dumps(shown)
    database = b"".join(path.read_bytes() for path in stage.folder.glob("tpujob.db*"))
    assert CANARY.encode() not in database
    assert b"WANDB_API_KEY" in database


def test_a_job_that_names_an_unset_secret_is_refused_in_one_line(stage: Stage) -> None:
    for ask in (stage.api.plan, stage.api.create):
        with pytest.raises(BadSpec) as error:
            ask({**SPEC, "run": {**RUN, "secrets": ["HF_TOKEN", "WANDB_API_KEY"]}})
        assert error.value.message == "run.secrets: HF_TOKEN, WANDB_API_KEY are not set"
        assert error.value.hint == "tpujob secret set HF_TOKEN"
    assert stage.store.list() == []
    assert stage.bucket.objects == {}


def test_a_secret_of_several_lines_does_not_go_into_an_image(stage: Stage) -> None:
    stage.api.set_secret("WANDB_API_KEY", "one\ntwo")
    with pytest.raises(BadSpec, match="WANDB_API_KEY has several lines"):
        stage.api.create({**KEYS, "env": {"docker": "lab/train@sha256:" + "0" * 64}})
    stage.create(run=RUN)


def test_a_secret_that_vanished_ends_the_job_with_what_to_do(stage: Stage) -> None:
    stage.api.set_secret("WANDB_API_KEY", CANARY)
    job_id = stage.create(run=RUN)
    stage.secrets.values.clear()
    job = stage.until(job_id, State.FAILED)
    assert job.cause is Cause.BAD_SPEC
    cure = f"`tpujob secret set WANDB_API_KEY`, then `tpujob resume {job_id}`"
    assert f"no secret WANDB_API_KEY is set any more: {cure}" in job.message
    assert stage.cloud.machines == {}


def test_an_unreadable_secret_ends_the_job(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.api.set_secret("WANDB_API_KEY", CANARY)
    job_id = stage.create(run=RUN)

    def damaged(owner: str, name: str) -> str:
        raise StoreError(f"secrets/{name} cannot be read: JSONDecodeError")

    monkeypatch.setattr(stage.secrets, "get", damaged)
    job = stage.until(job_id, State.FAILED)
    assert "secrets/WANDB_API_KEY cannot be read" in job.message
    assert stage.cloud.machines == {}


def test_a_secret_that_a_live_job_names_stays(stage: Stage) -> None:
    stage.api.set_secret("WANDB_API_KEY", CANARY)
    job_id = stage.create(run=RUN)
    with pytest.raises(IllegalInState, match=f"job {job_id} is active and uses"):
        stage.api.remove_secret("WANDB_API_KEY")
    stage.api.delete(job_id)
    stage.until(job_id, lambda job: job.state.final)
    stage.api.remove_secret("WANDB_API_KEY")
    with pytest.raises(NotFound):
        stage.api.remove_secret("WANDB_API_KEY")


def test_secrets_are_their_owners_alone(stage: Stage) -> None:
    ada, bob = stage.api.acting_for(ADA), stage.api.acting_for(BOB)
    ada.set_secret("WANDB_API_KEY", CANARY)
    assert [secret["name"] for secret in ada.secrets()] == ["WANDB_API_KEY"]
    assert bob.secrets() == []
    with pytest.raises(NotFound):
        bob.remove_secret("WANDB_API_KEY")
    with pytest.raises(BadSpec, match="is not set"):
        bob.create(KEYS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a-b", CANARY),
        ("", CANARY),
        ("../x", CANARY),
        ("TPUJOB_X", CANARY),
        ("A", ""),
        ("A", CANARY + "\0"),
        ("A", CANARY + "\ud800"),
        ("A", CANARY * 5000),
    ],
)
def test_an_invalid_secret_is_refused_without_value(stage: Stage, name: str, value: str) -> None:
    with pytest.raises(BadRequest) as error:
        stage.api.set_secret(name, value)
    assert "canary" not in str(error.value) + error.value.hint
    assert stage.secrets.values == {}


# Not given back ------------------------------------------------------------------------------------------------------


def test_values_of_variables_with_a_name_like_a_secret_are_not_given_back(stage: Stage) -> None:
    run = {"command": "true", "env": {"LR": "0.1", "WANDB_API_KEY": CANARY}}
    first = stage.create(run=run)
    second = stage.create(run={**run, "env": {"LR": "0.2", "WANDB_API_KEY": CANARY + "2"}})
    assert stage.api.get(first)["spec"]["run"]["env"] == {"LR": "set", "WANDB_API_KEY": "set"}
    diff = stage.api.diff(first, second)
    assert [(c["key"], c["a"], c["b"]) for c in diff["spec"]] == [
        ("run.env.LR", "0.1", "0.2"),
        ("run.env.WANDB_API_KEY", "set", "changed"),
    ]
    everything = [stage.api.list()["rows"], stage.api.events(first), diff, stage.api.get(second)]
    assert CANARY not in json.dumps(everything)
    warned = stage.api.plan({**SPEC, "run": run})["warnings"]
    assert [w for w in warned if "tpujob secret set WANDB_API_KEY" in w]
    assert not [w for w in warned if "LR" in w]


# Cleaned -------------------------------------------------------------------------------------------------------------


def ship(api: Jobs, text: str) -> str:
    import hashlib

    data, bucket = bundle_of(text), api.plan(SPEC)["bucket"]
    return api.put_bundle(hashlib.sha256(data).hexdigest(), data, bucket=bucket)


def made(stage: Stage, bundle: str, *, diff: str = "", **changes: Any) -> str:
    code = {"commit": "0" * 40, "branch": "main", "dirty": bool(diff), "diff": diff}
    uploaded: Any = code if diff else None
    return stage.api.create({**SPEC, **changes}, bundles=[bundle], code=uploaded)["id"]


def clean(stage: Stage, *jobs: str) -> None:
    for job_id in jobs:
        stage.api.delete(job_id)
        stage.until(job_id, State.CANCELLED)
    for job_id in jobs:
        stage.api.clean(job_id)
    for job_id in jobs:
        stage.step(job_id)
    remaining = {job.id for job in stage.store.list()}
    assert remaining.isdisjoint(jobs)


def test_the_last_job_that_names_its_code_takes_it_away(stage: Stage) -> None:
    bundle, other = ship(stage.api, "one"), ship(stage.api, "two")
    first, second = made(stage, bundle, diff="+a\n"), made(stage, bundle, diff="+a\n")
    third = made(stage, other)
    code = stage.job(first).code
    assert code is not None
    clean(stage, first)
    assert {bundle, other, code.diff} <= set(stage.bucket.objects)
    clean(stage, second)
    assert {bundle, code.diff}.isdisjoint(stage.bucket.objects)
    assert other in stage.bucket.objects
    clean(stage, third)
    assert stage.bucket.objects == {}


def test_the_code_of_other_owners_stays(stage: Stage) -> None:
    theirs = stage.api.acting_for(BOB)
    mine, bobs = ship(stage.api, "same"), ship(theirs, "same")  # pyright: ignore[reportArgumentType]
    assert mine != bobs
    job_id = made(stage, mine)
    theirs.create(SPEC, bundles=[bobs])
    clean(stage, job_id)
    assert set(stage.bucket.objects) == {bobs}


def test_a_busy_bucket_refuses_no_stored_job(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(path: str, *, timeout: float) -> None:
        raise Transient("429: one change a second")

    monkeypatch.setattr(stage.bucket, "touch", busy)
    assert stage.job(made(stage, ship(stage.api, "one"))).bundles


def interleave(
    patch: pytest.MonkeyPatch, target: object, name: str, then: Callable[[], None]
) -> None:
    """Call `then` once, before the next call of that method."""
    real = getattr(target, name)

    def call(*args: Any, **options: Any) -> Any:
        patch.setattr(target, name, real)
        then()
        return real(*args, **options)

    patch.setattr(target, name, call)


@pytest.mark.parametrize(
    "moment",
    [
        "the cleaning has looked at nothing",
        "the cleaning has looked at the objects",
        "the cleaning has looked at the records",
        "the new job's code is there, and no record",
        "the new job is stored, and does not hold its code",
    ],
)
def test_a_job_made_while_another_is_cleaned_has_its_code(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """At that moment of the one, the whole of the other happens."""
    bundle = ship(stage.api, "one")
    old = made(stage, bundle)
    stage.api.delete(old)
    stage.until(old, State.CANCELLED)
    stage.api.clean(old)
    born: list[str] = []

    def submit() -> None:
        """Submit a job like the command: code that is gone is sent again, and requested again with the same key."""
        for _ in range(2):
            try:
                path = ship(stage.api, "one")
                made_now = stage.api.create(SPEC, bundles=[path], idempotency_key="k")
            except NotFound:
                continue
            born.append(made_now["id"])
            return

    def wipe() -> None:
        stage.reconciler.tick(old)

    match moment:
        case "the cleaning has looked at nothing":
            interleave(monkeypatch, stage.bucket, "list", submit)
            wipe()
        case "the cleaning has looked at the objects":
            interleave(monkeypatch, stage.store, "list", submit)
            wipe()
        case "the cleaning has looked at the records":
            interleave(monkeypatch, stage.bucket, "delete", submit)
            wipe()
        case "the new job's code is there, and no record":
            interleave(monkeypatch, stage.store, "create", wipe)
            submit()
        case _:
            interleave(monkeypatch, stage.bucket, "touch", wipe)
            submit()
    (new,) = born
    assert stage.job(new).bundles == (bundle,)
    assert bundle in stage.bucket.objects, "the new job lost its code"
    stage.reconciler.tick(old)
    assert [job.id for job in stage.store.list()] == [new], "one was made twice, or not cleaned"
    clean(stage, new)
    assert stage.bucket.objects == {}
