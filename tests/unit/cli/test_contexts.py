"""`tpujob init`, `use` and `bucket`: contexts made, chosen and given buckets, by hand and by script."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Tpujob, withdraw
from tests.support.scripted import ScriptedJobs
from tests.support.signed_in import signed_in
from tpujob.config import context, settings
from tpujob.emulator.storage import StorageServer

LAB = ("init", "--project", "my-lab-1", "--zone", "us-central2-b")
LETTER = "64 spot Cloud TPU v5e chips in zone europe-west4-b\n32 spot Cloud TPU v4 chips in zone us-central2-b"
LOGIN = "gcloud auth application-default login"


@pytest.fixture(autouse=True)
def no_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a machine without credentials, on which no client looks for a metadata server."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "TPUJOB_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageServer]:
    server = StorageServer(tmp_path / "storage")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    yield server
    server.stop()


def written(state: Path, name: str = "my-lab-1") -> context.Context:
    return context.read(settings.load(state), name)


# init ----------------------------------------------------------------------------------------------------------------


def test_a_context_is_written_shown_and_then_used(tpujob: Tpujob, tpujob_state: Path) -> None:
    result = tpujob(
        *LAB,
        *("--zone", "europe-west4-b", "--bucket", "gs://lab-us"),
        *("--bucket", "europe-west4=gs://lab-eu/", "--network", "net", "--ssh", "iap"),
        *("--store", "firestore", "--grant", "v4:us-central2-b:spot:32"),
    )
    made = written(tpujob_state)
    assert made.zones == ("us-central2-b", "europe-west4-b")
    assert made.buckets == {"us-central2": "gs://lab-us", "europe-west4": "gs://lab-eu"}
    assert (made.network, made.ssh, made.store) == ("net", "iap", "firestore")
    assert [(g.type, g.chips) for g in made.grants] == [("v4", 32)]
    assert "  project: my-lab-1" in result.out, "the file is shown"
    assert result.out.endswith("Next:\n  tpujob doctor\n")
    assert settings.load(tpujob_state).context == "my-lab-1"


@pytest.mark.parametrize(("endpoint", "way"), [("", "iap"), ("unix:/somewhere", "internal")])
def test_a_new_context_reaches_no_host_over_the_open_internet_by_default(
    tpujob: Tpujob, tpujob_state: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, way: str
) -> None:
    monkeypatch.setenv("TPUJOB_TPU_ENDPOINT", endpoint)
    assert f"Hosts are reached by `ssh: {way}`: " in tpujob(*LAB).out
    assert written(tpujob_state).ssh == way
    output = tpujob(*LAB, "--ssh", "external", "--force").out
    assert "Hosts are reached by" not in output
    assert "  ssh: external" in output, "written, also if it is the default of older files"
    assert "ssh" in written(tpujob_state).model_fields_set


def test_a_grant_letter_gives_the_zones(
    tpujob: Tpujob, tpujob_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(LETTER))
    tpujob("init", "--project", "my-lab-1", "--grant-file", "-")
    assert written(tpujob_state).zones == ("europe-west4-b", "us-central2-b")


def test_the_project_is_guessed_where_credentials_name_one(
    tpujob: Tpujob, tpujob_state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "--project" in tpujob("init", "--zone", "us-central2-b", code=2).err
    file = tmp_path / "adc.json"
    made = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
    file.write_text(json.dumps(made))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "their-lab-7")
    tpujob("init", "--zone", "us-central2-b")
    assert written(tpujob_state, "their-lab-7").project == "their-lab-7"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--project", "NOT ONE"), 65, "project: must be a project's id"),
        (("--bucket", "gs://a-a", "--bucket", "gs://b-b"), 2, "two buckets are given for us-central2"),
        (("--grant", "v4"), 2, "write TYPE:ZONE:PRICING:CHIPS, such as v4:us-central2-b:spot:32"),
        (("--name", "../x"), 2, "is not a valid name of a context"),
        (("--grant-file", "none.txt"), 65, "none.txt: there is no such file"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_and_nothing_is_written(
    tpujob: Tpujob, tpujob_state: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    name = () if "--name" in words else ("--name", "lab")
    assert message in tpujob(*LAB, *name, *words, code=code).err
    assert context.names(settings.load(tpujob_state)) == []
    assert settings.load(tpujob_state).context == "local"


def test_a_context_is_written_over_only_on_demand(tpujob: Tpujob, tpujob_state: Path) -> None:
    next_ = "Next:\n  tpujob bucket create --region us-central2\n  tpujob doctor\n"
    assert next_ in tpujob(*LAB).out
    again = (*LAB, "--network", "other")
    assert "my-lab-1.yaml, or overwrite it with --force" in tpujob(*again, code=2).err
    assert written(tpujob_state).network == ""
    tpujob(*again, "--force")
    assert written(tpujob_state).network == "other"


# use -----------------------------------------------------------------------------------------------------------------


def test_contexts_are_listed_and_the_current_one_is_marked(
    tpujob: Tpujob, tpujob_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tpujob("use").out.startswith("* local: the emulator on this machine\n\nTo run jobs in")
    tpujob(*LAB)
    (tpujob_state / "contexts" / "broken.yaml").write_text("name: broken\n")
    listed = tpujob("use").out.splitlines()
    assert listed[0] == "  local: the emulator on this machine"
    assert listed[1].startswith("  broken: ")
    assert "broken.yaml:1: needs project" in listed[1]
    assert listed[2] == "* my-lab-1: project my-lab-1, us-central2-b"
    assert [c["current"] for c in tpujob("use", "--json").json] == [False, False, True]
    monkeypatch.setenv("TPUJOB_CONTEXT", "local")
    assert tpujob("use").out.startswith("* local")
    result = tpujob("use", "my-lab-1")
    assert "TPUJOB_CONTEXT is set, so this terminal keeps using local" in result.err


def test_a_missing_or_broken_context_is_not_chosen(tpujob: Tpujob, tpujob_state: Path) -> None:
    assert "there is no context 'nope'" in tpujob("use", "nope", code=3).err
    (tpujob_state / "contexts").mkdir(exist_ok=True)
    (tpujob_state / "contexts" / "lab.yaml").write_text("name: lab\nzones: [mars]\n")
    assert "lab.yaml:2: zones: mars is not a zone with TPUs" in tpujob("use", "lab", code=65).err
    assert settings.load(tpujob_state).context == "local"
    result = tpujob("init", "--project", "my-lab-1", "--zone", "us-central2-x")
    assert "the zone us-central2-x (did you mean us-central2-b?)" in result.err
    assert written(tpujob_state).zones == ("us-central2-x",)


def test_a_signed_in_person_uses_the_lab(tpujob: Tpujob, tpujob_state: Path, edge: str) -> None:
    tpujob("use", edge, "--name", "prod")
    signed_in(tpujob_state, "prod", edge, "wrong")
    assert "tpujob login" in tpujob("list", code=77).err
    signed_in(tpujob_state, "prod", edge)

    withdraw(tpujob_state, "backend")  # no backend of this machine can answer
    assert tpujob("list", "--json").json != []
    assert f"prod: the backend is deployed at {edge}" in tpujob("status").out
    assert "it is not started here" in tpujob("up", code=2).err
    assert "You are ada there, admin." in tpujob("use", edge).out
    elsewhere = "https://127.0.0.1:9"
    file = tpujob_state / "contexts" / "prod.yaml"
    file.write_text(file.read_text().replace(edge, elsewhere))
    signed_in(tpujob_state, "prod", elsewhere)
    gone = tpujob("list", code=69).err
    assert "check the address" in gone
    assert "tpujob up" not in gone


def test_the_sign_in_is_kept_for_a_repeated_choice(tpujob: Tpujob, tpujob_state: Path) -> None:
    url, client = "https://tpujob.example.org", "1-x.apps.googleusercontent.com"
    tpujob("use", url, "--client-id", client, "--client-secret", "s")
    tpujob("use", f"{url}/", "--door", "iap")
    made = written(tpujob_state, "tpujob")
    assert (made.door, made.sign_in.client_id, made.sign_in.client_secret) == ("iap", client, "s")
    for option, message in (
        (("--client-id", "me"), "an OAuth client's id"),
        (("--door", "open"), "allowed: iam, iap, public"),
        (("--account", "?"), "machine, or the e-mail"),
    ):
        assert message in tpujob("use", url, *option, code=65).err
    for option in (("--door", "iam"), ("--name", "other")):
        assert "go with the URL of a backend" in tpujob("use", "tpujob", *option, code=2).err
    assert written(tpujob_state, "tpujob") == made
    tpujob("use", "https://b.example.org", "--name", "b")
    assert "names no OAuth client" in tpujob("login", code=2).err
    assert "https://b.example.org: it is not stopped here" in tpujob("down", code=2).err
    message = tpujob("use", "http://127.0.0.1:8080", code=65).err
    assert "backend: must be an https address" in message, "no token in the clear"


# Where a command takes effect ----------------------------------------------------------------------------------------


def test_commands_without_credentials_name_the_login_and_start_nothing(
    tpujob: Tpujob, tpujob_state: Path, job_file: Path
) -> None:
    tpujob(*LAB)
    for words in (("list",), ("create", str(job_file)), ("sweep",), ("up",)):
        assert LOGIN in tpujob(*words, code=73).err, words
    assert "TPUJOB_CONTEXT=local tpujob demo" in tpujob("demo", code=2).err
    assert not list((tpujob_state / "contexts" / "my-lab-1").glob("run/*.process"))


def test_a_backend_is_stopped_after_the_file_of_its_context_is_gone(
    tpujob: Tpujob, tpujob_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tpujob(*LAB)
    (tpujob_state / "contexts" / "my-lab-1.yaml").unlink()
    assert "there is no context 'my-lab-1'" in tpujob("down", code=3).err
    with monkeypatch.context() as running:
        running.setattr("tpujob.config.stack_processes.down", lambda _: ["backend"])
        assert tpujob("down").out == "Stopped: backend.\n"


def test_one_job_may_cross_regions(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    tpujob("create", str(job_file), "--dry-run")
    tpujob("create", str(job_file), "--dry-run", "--allow-cross-region")
    allowed = [call["spec"]["tpu"]["allow_cross_region"] for call in api.named("plan")]
    assert allowed == [False, True]


# bucket --------------------------------------------------------------------------------------------------------------


def test_a_bucket_is_made_for_a_region_and_kept_in_the_context(
    tpujob: Tpujob, tpujob_state: Path, storage: StorageServer
) -> None:
    tpujob(*LAB, "--zone", "europe-west4-b")
    first = tpujob("bucket", "create").out
    assert first.startswith("gs://my-lab-1-tpujob-us-central2 in us-central2, for zones of us-cen")
    assert "  logs        removed after 90 days" in first
    assert tpujob("bucket", "create").out == first, "it is safe to repeat"
    tpujob("bucket", "create", "--region", "europe-west4", "--name", "gs://ours", "--log-days", "0")
    assert written(tpujob_state).buckets == {
        "us-central2": "gs://my-lab-1-tpujob-us-central2",
        "europe-west4": "gs://ours",
    }
    buckets = {bucket["name"]: bucket for bucket in tpujob("bucket", "show", "--json").json}
    assert buckets["ours"]["log_days"] is None
    assert buckets["my-lab-1-tpujob-us-central2"]["region"] == "us-central2"
    assert tpujob("bucket", "show").out.count("public      never") == 2


def test_an_impossible_bucket_is_refused_and_not_kept(
    tpujob: Tpujob, tpujob_state: Path, storage: StorageServer
) -> None:
    assert "makes each bucket when it is first used" in tpujob("bucket", "show", code=2).err
    tpujob(*LAB, "--bucket", "gs://ours")
    tpujob("bucket", "create")
    wrong = ("bucket", "create", "--region")
    assert "mars is not a region with TPUs" in tpujob(*wrong, "mars", code=65).err
    assert "is in us-central2" in tpujob(*wrong, "us-east1", "--name", "gs://ours", code=73).err
    assert "must be a bucket" in tpujob(*wrong, "us-east1", "--name", "OURS", code=65).err
    elsewhere = context.make({**written(tpujob_state).model_dump(), "buckets": {"us-east1": "gs://ours"}})  # fmt: skip
    context.write(settings.load(tpujob_state, context="local"), elsewhere)
    assert "is in us-central2, not in us-east1" in tpujob(*wrong, "us-east1", code=73).err
    assert "tpujob bucket create" in tpujob(*LAB, "--name", "none").out
    assert "the context none has no bucket" in tpujob("bucket", "show", code=2).err
