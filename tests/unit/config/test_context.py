"""Contexts as files: their keys, the errors of wrong ones, and that no two contexts share anything."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tpujob.adapters.google.identity import in_google_cloud
from tpujob.config import context
from tpujob.config.queue import queue_settings
from tpujob.config.settings import Settings, load
from tpujob.domain.capacity.settings import OwnerLimits
from tpujob.domain.money.shared import SharedBudget
from tpujob.errors import BadRequest, BadSpec, NotFound

LAB = {
    "name": "lab",
    "project": "my-lab-1",
    "zones": ["us-central2-b", "europe-west4-b"],
    "buckets": {"us-central2": "gs://my-lab-us"},
}


def at(state: Path, name: str = "local", user: str = "ada") -> Settings:
    return load(state, context=name, env={"USER": user})


def made(**fields: Any) -> context.Context:
    return context.make(LAB | fields)


def test_a_context_is_read_back_and_private_to_its_owner(tmp_path: Path) -> None:
    everything = made(
        network="net",
        subnetwork="projects/p/regions/r/subnetworks/s",
        service_account="jobs@my-lab-1.iam.gserviceaccount.com",
        service_accounts={"ada@example.org": "tpujob-vm-ada@my-lab-1.iam.gserviceaccount.com"},
        door="public",
        sign_in={"client_id": "1-x.apps.googleusercontent.com", "gcloud": True},
        ssh="iap",
        secure_boot=True,
        tags=["tpu"],
        labels={"team": "vision"},
        store="firestore",
        database="jobs",
        secret_region="europe-west4",
        grants=[{"type": "v4", "zone": "us-central2-b", "pricing": "spot", "chips": 32}],
        calls_per_minute=60,
        creates_per_minute=30,
        notes="ask Ada\nfirst",
    )
    settings = at(tmp_path)
    for written in (made(), everything):
        path = context.write(settings, written)
        assert context.read(settings, "lab") == written, path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert context.names(settings) == ["lab"]
    assert [p.name for p in settings.contexts.iterdir() if p.is_file()] == ["lab.yaml"]


def test_slices_get_external_addresses_where_they_are_reached_by_them() -> None:
    ways = ("external", "internal", "iap")
    assert [way for way in ways if made(ssh=way).with_external_ips] == ["external"]
    assert made(ssh="iap", external_ips=True).with_external_ips


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("project: X", "lab.yaml:2: project: must be a project's id, such as my-lab-4711, not 'X'"),
        ("zones: us-central2b", "lab.yaml:2: zones: us-central2b is not a zone with TPUs; did you mean"),
        ("buckets: {us-central2: my-lab}", "buckets.us-central2: must be a bucket, such as gs://"),
        ("buckets: {mars: gs://my-lab}", "the name mars is not a region with TPUs"),
        ("ssh: tor", "ssh: tor is not a way to reach a host; allowed: external, internal, iap"),
        ("store: mysql", "store: mysql is not a place for the jobs; allowed: sqlite, firestore"),
        ("calls_per_minute: lots", "calls_per_minute: must be a whole number, not the text 'lots'"),
        ("zone: us-central2-b", "zone: no such key; did you mean zones"),
        ("grants: [{type: v4, zone: us-central2-b}]", "grants[0].chips: is missing, and required"),
        ("grants: [{type: 9v}]", "grants[0].type: 9v is not a generation of TPUs"),
        ("backend: http://127.0.0.1:8087", "backend: must be an https address, or unix:/PATH"),
        ("service_accounts: {ada: me}", "service_accounts.ada: must be the e-mail address"),
        ("project: my-lab-1\nproject: my-lab-2", "lab.yaml:3: project: given twice, first in line 2"),
        ("project: my-lab-1", "lab.yaml:1: needs zones, in order of preference"),
        ("zones: us-central2-b", "lab.yaml:1: needs project, or backend"),
        ("budgets: {project: {usd: 0}}", "lab.yaml:2: budgets.project.usd: must be from 0.01 to"),
        ("budgets: {project: {usd: 5, per: week}}", "lab.yaml:2: budgets.project.per: week is not a period"),
        ("budgets: {projekt: {usd: 5}}", "budgets.projekt: no such key; did you mean project?"),
        ("budgets:\n  users:\n    ada: 5", "lab.yaml:4: budgets.users.ada: must be a mapping (keys:"),
        ("budgets: {users: [ada]}", "budgets.users: must be a mapping of users to budgets"),
        ("queue: {shares: {vision: 0}}", "lab.yaml:2: queue.shares.vision: must be from 0.001 to 1000"),
        ("queue: {shares: {vision: .nan}}", "queue.shares.vision: must be from 0.001 to 1000"),
        ("queue: {shares: {Vision: 1}}", "must be the name of a share"),
        ("queue:\n  shares:\n    vision: {members: [ada lo]}", "queue.shares.vision.members: must be a login or"),
        ("queue: {shares: {vision: {wieght: 2}}}", "queue.shares.vision.wieght: no such key; did you mean weight?"),
        ("queue: {shares: {vision: [ada]}}", "queue.shares.vision: must be a number, such as 2"),
        ("queue: {limits: {running: -1}}", "lab.yaml:2: queue.limits.running: must be from 0 to"),
        ("queue: {types: {v4-9: {}}}", "lab.yaml:2: queue.types"),
        ("queue: {hand_on: all}", "lab.yaml:2: queue.hand_on: "),
        ("queue: {keep: 2h}", "lab.yaml:2: queue.keep: must be at most 1h, not 2h"),
    ],
)  # fmt: skip
def test_an_error_in_a_context_file_has_its_line(tmp_path: Path, line: str, error: str) -> None:
    settings = at(tmp_path)
    context.write(settings, made())
    context.path_of(settings, "lab").write_text(f"name: lab\n{line}\n")
    with pytest.raises(BadSpec) as raised:
        context.read(settings, "lab")
    assert error in raised.value.message


def test_slices_are_not_handed_on_between_accounts() -> None:
    apart = {"ada@example.org": "a@my-lab.iam.gserviceaccount.com"}
    with pytest.raises(BadSpec, match=r"queue\.hand_on: lab does not go with service_accounts"):
        made(queue={"hand_on": "lab"}, service_accounts=apart)


def test_budgets_are_read_and_the_projects_comes_first() -> None:
    project = {"usd": 500.5, "per": "month"}
    lab = made(budgets={"users": {"ada": {"usd": 100}}, "project": project})
    assert context.budgets(lab) == (
        SharedBudget(500_500_000, "", monthly=True),
        SharedBudget(100_000_000, "ada"),
    )
    assert context.parse(context.text(lab), "lab.yaml") == lab
    assert context.budgets(made()) == ()


def test_the_queue_is_read() -> None:
    quota = {"type": "v4", "zone": "us-central2-b", "pricing": "spot", "chips": 64}
    lab = made(
        queue={
            "shares": {"vision": 2, "speech": {"weight": 0.5, "members": ["Ada", "eve"]}},
            "limits": {"running": 8, "queued": 1000},
            "types": {"v4-8": {"chips": 16}},
            "high": ["ada"],
            "hand_on": "lab",
            "keep": "10m",
            "quota": [quota],
        }
    )
    settings = queue_settings(lab.queue)
    assert settings.weights == {"vision": 2.0, "speech": 0.5}
    assert settings.members == {"speech": {"ada", "eve"}}
    assert settings.limits == OwnerLimits(running=8, queued=1000)
    assert settings.by_type == {"v4-8": OwnerLimits(chips=16)}
    assert (settings.high, settings.hand_on, settings.keep) == ({"ada"}, "lab", 600)
    assert settings.quota == {"us-central2-b/v4/spot": 64}


@pytest.mark.parametrize(
    ("firmware", "way"),
    [("Google Compute Engine\n", "internal"), ("OptiPlex\n", "iap"), ("", "iap")],
)
def test_the_firmware_shows_a_google_machine(tmp_path: Path, firmware: str, way: str) -> None:
    file = tmp_path / "product_name"
    if firmware:
        file.write_text(firmware)
    in_cloud = in_google_cloud(file)
    assert context.way_in(emulated=False, in_google_cloud=in_cloud)[0] == way


def test_a_file_without_ssh_stays_without_it() -> None:
    old = context.parse("name: lab\nproject: my-lab-1\nzones: [us-central2-b]\n", "lab.yaml")
    assert old.ssh == "external"
    again = context.text(context.with_bucket(old, "us-central2", "gs://my-lab"))
    assert not [key for key in ("ssh", "store", "network", "grants") if f"{key}:" in again]


def test_one_bucket_can_be_in_a_pair_of_regions_and_in_no_more() -> None:
    pair = {"us-central1": "gs://b-b", "us-east1": "gs://b-b"}
    site = context.site(made(buckets=pair), "ada")
    assert site.bucket_in("us-central1") == site.bucket_in("us-east1") == "gs://b-b/ada"
    with pytest.raises(BadSpec, match="gs://b-b is given for several regions, and can be in one"):
        made(buckets={**pair, "us-central2": "gs://b-b"})


def test_a_context_is_named_after_its_file_and_never_local(tmp_path: Path) -> None:
    settings = at(tmp_path)
    with pytest.raises(NotFound, match=r"no context 'lab'.*lab\.yaml is not there") as missing:
        context.read(settings, "lab")
    assert "tpujob init" in missing.value.hint
    path = context.write(settings, made())
    path.rename(path.with_name("other.yaml"))
    with pytest.raises(BadSpec, match=r"is 'lab', so the file must be lab\.yaml"):
        context.read(settings, "other")
    with pytest.raises(BadSpec, match="local is the stack on this machine"):
        made(name="local")
    with pytest.raises(BadRequest, match="is not a valid name of a context"):
        context.read(settings, "../../etc/passwd")


def test_a_bucket_is_added_and_what_a_person_wrote_stays(tmp_path: Path) -> None:
    settings = at(tmp_path)
    context.write(settings, made())
    path = context.path_of(settings, "lab")
    path.write_text(path.read_text() + "# the v4 are Ben's on Mondays\n")
    bucket = ("europe-west4", "gs://my-lab-eu")
    context.save_bucket(settings, context.read(settings, "lab"), *bucket)
    assert "# the v4 are Ben's on Mondays" in path.read_text()
    both = {"us-central2": "gs://my-lab-us", "europe-west4": "gs://my-lab-eu"}
    assert context.read(settings, "lab").buckets == both


@pytest.mark.parametrize("text", ["{buckets: {us-central2: gs://my-lab-us}, ", "{"])
def test_a_bucket_is_added_however_the_file_is_written(tmp_path: Path, text: str) -> None:
    settings = at(tmp_path)
    path = context.write(settings, made())
    path.write_text(text + "name: lab, project: my-lab-1, zones: [us-central2-b]}\n")
    context.save_bucket(settings, context.read(settings, "lab"), "us-east1", "gs://my-lab-east")
    assert context.read(settings, "lab").buckets["us-east1"] == "gs://my-lab-east"


# Owners --------------------------------------------------------------------------------------------------------------


def test_every_store_draws_a_word_of_its_own_once(tmp_path: Path) -> None:
    settings = at(tmp_path, "lab")
    context.write(settings, made())
    with ThreadPoolExecutor(8) as pool:
        drawn = set(pool.map(lambda _: context.owner(settings, made()), range(8)))
    assert len(drawn) == 1
    for user in ("ada", "7up", "a" * 60, "x_y"):
        other = at(tmp_path / user, "lab", user)
        context.write(other, made())
        drawn.add(context.owner(other, made()))
    assert len(drawn) == 5, "the same context on two machines is two backends"
    for word in drawn:
        assert len(f"tj-000001-100-{word}-1234") <= 63, "a name in the cloud"
        assert word[0].isalpha()
        assert word[-1].isalpha()


def test_backends_of_one_database_share_a_word(tmp_path: Path) -> None:
    def word(**fields: Any) -> str:
        return context.owner(at(tmp_path), made(store="firestore", **fields))

    assert word() == "my-lab-1-fs"
    assert word(database="jobs") == "my-lab-1-jobs-fs"
    assert word(project="example.com:my-lab-1") == "example-com-my-lab-1-fs"
    long = [word(database="d" * 60 + end) for end in "xy"]
    assert len(set(long)) == 2
    assert all(len(word) <= 40 for word in long)


def test_a_url_becomes_a_context_named_after_its_host(tmp_path: Path) -> None:
    settings = at(tmp_path)
    first = context.for_backend(settings, "https://tpujob-x7.a.run.app")
    assert (first.name, first.backend) == ("tpujob-x7", "https://tpujob-x7.a.run.app")
    context.write(settings, first)
    assert context.for_backend(settings, first.backend) == first
    assert context.for_backend(settings, "https://127.0.0.1:8080").name == "backend-8080"
    assert context.for_backend(settings, first.backend, "prod").name == "prod"
    with pytest.raises(BadRequest, match="already, for something else"):
        context.for_backend(settings, "https://tpujob-x7.other.app")
