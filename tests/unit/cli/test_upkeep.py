"""`tpujob hosts`, `leaks` and `fsck`: what they ask, print and exit with. Golden texts at 80 columns."""

import pytest

from tests.support.commands import Tpujob
from tests.support.golden import golden
from tests.support.scripted import ScriptedJobs, leak_view, suspect_view
from tpujob.api import BrokenView, MemberView, SweptView
from tpujob.cli.commands.admin import hosts_table, leaks_table, members_table, removed_text
from tpujob.cli.options import complete_host
from tpujob.cli.render.text import width

HASH = "3f2a9c0d1e4b5a69788796a5b4c3d2e1"


@pytest.fixture
def suspects(api: ScriptedJobs) -> ScriptedJobs:
    api.suspects = {
        HASH: suspect_view(HASH, open=["job 000044 attempt 2: host 0: no TPU"]),
        "rack-2": suspect_view("rack-2", score=0.3, refused=False, pinned="good", reasons=[]),
        "\x1b[31mrack": suspect_view("\x1b[31mrack", zone="", score=0.1, refused=False),
    }
    return api


def test_hosts(tpujob: Tpujob, suspects: ScriptedJobs) -> None:
    golden("hosts", tpujob("hosts").out)
    assert "\x1b[31myes" in hosts_table([suspect_view("a")], 80, color=True)
    assert tpujob("hosts", "--json").json == [*suspects.suspects.values()]
    suspects.suspects.clear()
    assert tpujob("hosts").out.startswith("No machine is suspected")
    assert tpujob("hosts", "--json").json == []


def test_a_machine_is_pinned_and_cleared(tpujob: Tpujob, suspects: ScriptedJobs) -> None:
    output = tpujob("hosts", "pin", HASH, "--good").out
    assert output == f"{HASH}: pinned as good, score 2.00; programs may run on it.\n"
    assert tpujob("hosts", "pin", HASH, "--bad", "--json").json["refused"] is True
    assert "not pinned" in tpujob("hosts", "pin", "rack-2", "--off").out
    for options in ([], ["--good", "--bad"]):
        output = tpujob("hosts", "pin", "rack-2", *options, code=2).err
        assert "one of --good, --bad and --off" in output
    assert [c["verdict"] for c in suspects.named("pin_host")] == ["good", "bad", ""]
    assert HASH in tpujob("hosts", "clear", HASH).out
    assert HASH not in suspects.suspects
    assert "is neither suspected nor pinned" in tpujob("hosts", "clear", HASH, code=3).err


def test_a_machine_may_be_named_as_in_the_table(tpujob: Tpujob, api: ScriptedJobs) -> None:
    """Google Cloud's names are three hashes with slashes."""
    names = [f"/{HASH}/{HASH}/{n * 32}" for n in "ab"]
    api.suspects = {name: suspect_view(name) for name in names}
    name = tpujob("hosts").out.splitlines()[1].split()[0]
    assert "…" in name
    tpujob("hosts", "pin", name, "--bad")
    tpujob("hosts", "clear", name)
    assert api.named("pin_host") == [{"physical": names[0], "verdict": "bad"}]
    assert list(api.suspects) == names[1:]
    assert "0 machines match" in tpujob("hosts", "clear", name, code=2).err


def test_completion_offers_machines(suspects: ScriptedJobs) -> None:
    assert complete_host("rack") == [("rack-2", "us-central2-b, score 0.30")]
    suspects.raises = RuntimeError("down")
    assert complete_host("") == []


def test_leaks(tpujob: Tpujob, api: ScriptedJobs) -> None:
    result = tpujob("leaks")
    assert result.out == "No slice is left over: every slice in the cloud belongs to a job.\n"
    assert tpujob("leaks", "--json").json == []
    api.swept["deleted"] = [leak_view("tj-000042-1")]
    young = leak_view("tj-000007-13", age_s=90.0, usd_per_hour=None, zone="us-east5-b", job="")
    api.swept["kept"] = [young]
    golden("leaks", tpujob("leaks", code=6).out)
    assert tpujob("leaks", "--json", code=6).json == [*api.swept["deleted"], young]
    api.swept["deleted"] = []
    assert "no job claims, price unknown in all" in tpujob("leaks", code=6).out


def test_sweep(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert tpujob("sweep").out.startswith("No slice is left over")
    api.swept = SweptView(
        deleted=[leak_view("tj-000042-1")],
        kept=[leak_view("tj-000043-1", age_s=90.0, job="000043")],
        failed=[],
        unclear=[],
        keys=["tj-000007-1", "tj-000008-1"],
        unlisted={},
    )
    golden("sweep", tpujob("sweep", "--dry-run").out)
    assert [call["dry_run"] for call in api.named("sweep")] == [False, True]
    api.swept["failed"] = [leak_view("tj-000044-1", detail="deleting it: 403")]
    assert "1 slice could not be deleted; try again:" in tpujob("sweep", code=6).out
    assert tpujob("sweep", "--json", code=6).json == api.swept


def test_a_zone_that_could_not_be_listed_is_named(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.swept["unlisted"] = {"us-east5-b": "503 the service is unavailable"}
    result = tpujob("leaks", code=6)
    assert (result.out, "us-east5-b could not be listed: 503" in result.err) == ("", True)
    assert "us-east5-b could not be listed, and was left" in tpujob("sweep", code=6).out
    assert tpujob("sweep", "--json", code=6).json == api.swept


def test_fsck(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert "agree" in tpujob("fsck").out
    api.broken = [
        BrokenView(rule="I2", job="000042", text="it is failed and owns tj-000042-1"),
        BrokenView(rule="I2", job="", text="two\nlines \x1b[2J"),
    ]
    assert tpujob("fsck", code=6).out.splitlines() == [
        "I2  000042  it is failed and owns tj-000042-1",
        "I2  -       two lines ",
    ]
    assert len(tpujob("fsck", "--json", code=6).json) == 2


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_fit(columns: int) -> None:
    hosts = [suspect_view("x" * 64, zone="northamerica-northeast1-b", reasons=["y" * 300])]
    leaks = [leak_view("tj-000042-123", zone="northamerica-northeast1-b", detail="z" * 90)]
    for text in (hosts_table(hosts, columns), leaks_table(leaks, columns)):
        assert all(width(line) <= columns for line in text.splitlines()), text


# Members -------------------------------------------------------------------------------------------------------------

MEMBERS: list[MemberView] = [
    MemberView(name="ada@example.org", role="admin", id="google:1"),
    MemberView(name="ben@example.org", role="viewer", id=""),
    MemberView(name="cor.bob", role="", id="uid:7:cor.bob", jobs=3, active=1, secrets=1),
    MemberView(name="evee", role="", id="", named=["budgets.users", "queue.high"]),
]


def test_members() -> None:
    texts = {
        "all": members_table(MEMBERS, 80),
        "none but one who left": members_table(MEMBERS[2:3], 80),
        "removed": removed_text(MEMBERS[2]),
        "removed, with nothing": removed_text(MemberView(name="eve", role="", id="")),
        "handed over": removed_text(MemberView(name="eve", role="", id="", jobs=0), "ada"),
    }
    golden("members", texts)


def test_a_change_of_the_list_prints_its_warnings(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.warnings = ["this machine knows no login \x1b[31mbob"]
    added = tpujob("members", "add", "bob", "viewer")
    assert added.out == "bob is a viewer now.\n"
    assert added.err == "warning: this machine knows no login bob\n"
    tpujob("members", "remove", "bob", "--to", "ada")
    assert api.named("remove_member") == [{"name": "bob", "to": "ada", "secrets": False}]
