"""Faults by command: the control interface on its socket, its client, and `tpujob emulator`."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.http import ask
from tests.support.tpu_rig import (
    PARENT,
    QUICK,
    ZONE,
    Cloud,
    node,
    node_name,
    node_state,
    queued,
    queued_state,
    until,
)
from tpujob.cli import backend
from tpujob.cli.commands.emulator import group as cli
from tpujob.cli.commands.emulator import options
from tpujob.emulator import schedule
from tpujob.emulator.client import EmulatorClient
from tpujob.emulator.cloud.errors import Faults
from tpujob.emulator.tpu.served_world import CallFaults
from tpujob.errors import BackendGone, BadRequest, BadSpec, IllegalInState, NotFound

Run = Callable[..., str]
JOB = {"tpujob": "1", "tpujob-job": "000007"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cloud]:
    made = Cloud()
    yield made
    made.stop()


@pytest.fixture
def cloud(shared: Cloud) -> Iterator[Cloud]:
    """One ready slice of job 7, and no faults."""
    client = shared.client()
    client.create_queued_resource(queued("tj-000007-1", labels=JOB))
    until(lambda: queued_state(client, "tj-000007-1") == "ACTIVE", "ACTIVE")
    yield shared
    EmulatorClient(shared.control().path).do("end-plan")
    with shared.world.lock:
        shared.world.faults, shared.world.latencies = Faults(), QUICK
        shared.world.call_faults = CallFaults()
        shared.world.storage_faults.clear()
    for request in client.list_queued_resources(parent=PARENT):
        client.delete_queued_resource({"name": request.name, "force": True})
    until(lambda: not shared.world.queued and not shared.world.nodes, "an empty world")


@pytest.fixture
def control(cloud: Cloud) -> EmulatorClient:
    return EmulatorClient(cloud.control().path)


def test_preempt_finds_the_slice_of_a_job(cloud: Cloud, control: EmulatorClient) -> None:
    control.do("settings", suspend=3600)  # its nodes are deleted then
    assert control.do("preempt", target="7", notice_s=0)["slice"] == "tj-000007-1"
    until(lambda: control.status()["slices"][0]["queued"] == "SUSPENDING", "SUSPENDING")
    shown = control.status()["slices"][0]
    assert (shown["state"], shown["initiator"], shown["job"]) == ("PREEMPTED", "SERVICE", "000007")
    with pytest.raises(IllegalInState, match="PREEMPTED"):
        control.do("maintain", target="7")


def test_status_shows_the_faults_that_are_set(cloud: Cloud, control: EmulatorClient) -> None:
    control.do("stockout", zone=ZONE, type="v4", for_s=600)
    control.do("quota", zone=ZONE, type="v4-16", limit=32, pricing="spot")
    control.do("slow", target="tj-000007-1", host=1, factor=10)
    control.do("break-host", physical=f"{ZONE}-h003", fault="nan:step=3")
    control.do("api-error", method="get_node", code="UNAVAILABLE", count=3)
    status = control.status()
    assert status["faults"]["stockouts"][0]["generation"] == "v4"
    quota = status["faults"]["quotas"]
    assert [(q["used"], q["limit"]) for q in quota] == [(16, 32)]
    assert status["faults"]["calls"][0]["method"] == "GetNode"
    assert status["slices"][0]["hosts"][1]["factor"] == 10
    zone = next(z for z in status["zones"] if z["zone"] == ZONE)
    assert (zone["bad"], zone["stock"]["v4"]["used"]) == ([f"{ZONE}-h003"], 2)
    control.do("break-host", physical=f"{ZONE}-h003", mend=True)
    assert control.do("settings", create=0.03)["create"] == 0.03


@pytest.mark.parametrize(
    ("command", "values", "error"),
    [
        ("break-host", {"physical": "nowhere-h001"}, "no physical host 'nowhere-h001'"),
        ("break-host", {"physical": f"{ZONE}-h003", "fault": "nan"}, "from which step on"),
        ("slow", {"target": "7", "host": 9}, "hosts 0 to 1, not 9"),
        ("slow", {"target": "7", "factor": 5000}, "the factor must be from 1 to 1000"),
        ("storage-error", {"status": 418}, "418 is not one of 200, 403"),
        ("storage-error", {"method": "tea"}, "'TEA' is not one of GET"),
        ("delete", {"target": "8"}, "no slice or job '8'"),
        ("api-error", {"method": "MakeTea", "code": "UNKNOWN"}, "there is no call 'MakeTea'"),
        ("api-error", {"method": "GetNode", "code": "TEAPOT"}, "'TEAPOT' is not one of"),
        ("quota", {"zone": ZONE, "type": "v4-17", "limit": 1}, "no such type"),
        (
            "quota",
            {"zone": ZONE, "type": "v4", "limit": 1, "pricing": "x"},
            "'x' is not one of spot",
        ),
        ("stockout", {"zone": "mars-1-a"}, "mars-1-a"),
        ("unreachable", {"zone": "mars-1-a"}, "mars-1-a"),
        ("api-bug", {"name": "odd"}, "'odd' is not one of late-conflict"),
        ("chaos", {"seed": 1, "only": "tea"}, "'tea' is not one of preempt"),
        ("chaos", {"seed": 1, "rate": 0}, "the rate must be above 0"),
        ("add", {"kind": "network", "name": ""}, "the network has no name"),
    ],
)
def test_an_invalid_command_is_refused(
    control: EmulatorClient, command: str, values: dict[str, object], error: str
) -> None:
    with pytest.raises((BadRequest, NotFound), match=error):
        control.do(command, **values)


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"notice_s": "soon"}', b'{"notice_s": -1}'])
def test_a_bad_body_gets_one_clear_answer(cloud: Cloud, body: bytes) -> None:
    status, _, answer = ask(f"unix:{cloud.control().path}", "POST", "/preempt", body=body)
    assert status == 400
    assert answer["error"]


# The command line ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(control: EmulatorClient, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(options, "client", lambda: control)

    def call(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done.output

    return call


def test_every_command_works(cloud: Cloud, run: Run) -> None:
    assert "tj-000007-1" in run("status")
    assert run("maintain", "7", "--window", "1m").strip().endswith("for 60 s")
    assert "maintenance is announced, in 172800 s" in run("announce", "7", "--in", "2d")
    shown = cloud.alpha().get_node(name=f"{PARENT}/nodes/tj-000007-1").upcoming_maintenance
    assert (shown.type_.name, shown.maintenance_status.name) == ("SCHEDULED", "PENDING")
    assert shown.window_start_time < shown.window_end_time
    assert "no maintenance is announced" in run("announce", "7", "--off")
    assert "10 times slower" in run("slow", "7", "--host", "1", "--factor", "10")
    assert "no more capacity for v4" in run("stockout", ZONE, "v4", "--for", "10m")
    assert cloud.world.faults.stockouts[0].until is not None
    assert "again" in run("stockout", ZONE, "v4", "--off")
    assert "quota of v4 is 64" in run("quota", ZONE, "v4", "64")
    assert "quota of v4 is no limit" in run("quota", ZONE, "v4", "none")
    assert "GetNode: 1 call will answer UNAVAILABLE" in run("api-error", "GetNode", "unavailable")
    assert "no call is set to fail" in run("api-error", "GetNode", "OK", "--count", "0")
    assert "is bad" in run("break-host", f"{ZONE}-h009")
    assert "bad host" in run("status")
    assert "good again" in run("break-host", f"{ZONE}-h009", "--mend")
    assert "host 1 is out of memory" in run("oom", "7", "--host", "1")
    assert "host 0 hangs" in run("hang", "7", "--host", "0")
    assert "every host continues" in run("hang", "7", "--off")
    assert "host 1 has fallen silent" in run("silence", "7", "--host", "1")
    assert "silent" in run("status")
    assert "wedge is on" in run("api-bug", "wedge")
    assert "wedge is off" in run("api-bug", "wedge", "--off")
    assert "maximum run duration: 1800 s" in run("max-run", "30m")
    assert "do not reach it" in run("unreachable", "us-east5-a")
    assert "unreachable us-east5-a" in run("status")
    words = "storage-error --count 2 --status 429 --method post --path jobs/7"
    assert "2 POST requests for jobs/7 will answer 429" in run(*words.split())
    assert "POST jobs/7 429 before it takes effect, 2 times" in run("status")
    assert "no more faults" in run("storage-error", "--off")
    run(*words.split())
    assert "no more faults" in run("storage-error", "--count", "0")
    assert cloud.world.storage_faults.all() == []
    assert json.loads(run("settings", "--create", "0.03s"))["create"] == 0.03
    assert "gone in 30 s" in run("preempt", "tj-000007-1")
    assert "gone in" in run("status")
    assert json.loads(run("status", "--json"))["slices"][0]["name"] == "tj-000007-1"


def test_slices_that_others_have_made_can_be_named(
    cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of the node, or of the request; the backend is asked for what the emulator does not know."""

    class Backend:
        def get(self, name: str) -> dict[str, str]:
            if name != "digits":
                raise NotFound(f"no job of yours is called {name!r}")
            return {"id": "000007"}

    monkeypatch.setattr(backend, "connect", Backend)
    request = queued("pair")
    spec = request["queued_resource"]["tpu"]["node_spec"][0]
    del spec["node_id"]
    spec["multislice_params"] = {"node_count": 2}
    client = cloud.client()
    client.create_queued_resource(request)
    client.create_node(parent=PARENT, node_id="vm", node=node())
    until(lambda: queued_state(client, "pair") == "ACTIVE", "ACTIVE")
    until(lambda: node_state(client, "vm") == "READY", "READY")
    try:
        assert "vm: host 0 is" in run("slow", "vm")
        assert "pair-1: maintenance" in run("maintain", "pair-1")
        assert "is being preempted" in run("preempt", "pair", "--notice", "1h")
        assert "tj-000007-1: maintenance" in run("maintain", "digits")
        with pytest.raises(NotFound, match="no job of yours is called 'none'"):
            run("preempt", "none")
    finally:
        client.delete_node(name=node_name("vm"))


def test_commands_that_take_the_slice_away(cloud: Cloud, run: Run) -> None:
    output = run("maintain", "7", "--restart", "--notice", "1m", "--window", "5m")
    assert "tj-000007-1: its hosts go off in 60 s, for 300 s" in output
    assert "maintenance" in run("status")
    assert "suspended by the user" in run("suspend", "7")
    until(lambda: "SUSPENDED by USER" in run("status"), "suspended")
    assert "is being deleted" in run("delete", "7")
    until(lambda: "no slices" in run("status"), "deleted")


def test_status_of_a_request_without_hosts(cloud: Cloud, run: Run) -> None:
    run("stockout", ZONE)
    cloud.client().create_queued_resource(queued("tj-000008-1"))
    until(lambda: "WAITING_FOR_RESOURCES" in run("status"), "shown as waiting")
    assert "stockout" in run("status")


def test_chaos_reports_its_next_fault(control: EmulatorClient, run: Run) -> None:
    output = run("chaos", "--seed", "7", "--rate", "0.25", "--only", "oom, hang", "--for", "1000h")
    assert output.startswith("chaos 7: 0 done, next:")
    assert output.count("oom") + output.count("hang") == 5
    assert "chaos 7" in run("status")
    shown = control.status()["schedule"]["next"]
    expected = itertools.islice(schedule.chaos_steps(7, 0.25, ["oom", "hang"]), 5)
    assert [(n["do"], n["what"]) for n in shown] == [(step.do, step.text) for step in expected]
    assert "The schedule of faults is stopped" in run("chaos", "--off")
    assert control.status()["schedule"] is None
    with pytest.raises(BadRequest, match="needs a seed"):
        run("chaos")


def test_a_file_of_steps_is_run(
    control: EmulatorClient, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "drill.yaml"
    file.write_text(
        "# a job's id is no number\n- {at: 1h, do: preempt, target: 000042, notice: 5s}\n"
        "- {at: 2h, do: silence, host: 1}\n"
    )
    output = run("schedule", str(file))
    assert "preempt target=000042 notice_s=5.0" in output
    assert "silence host=1" in output
    file.write_text(json.dumps([{"at": 60, "do": "oom", "target": "tj-000042-1", "host": 1}]))
    assert "oom" in run("schedule", str(file))
    assert len(control.status()["schedule"]["next"]) == 1, "the first schedule goes on beside it"
    assert "The schedule of faults is stopped" in run("schedule", "--off")
    with pytest.raises(BadRequest, match="needs a file"):
        run("schedule")
    file.write_text("- {at: 1s")
    for name in ("none.yaml", "drill.yaml"):
        with pytest.raises(BadSpec, match=name):
            run("schedule", name)


def test_an_invalid_duration_is_refused(run: Run) -> None:
    with pytest.raises(BadRequest, match="notice must be a duration such as 30s, 10m or 2h"):
        run("preempt", "--notice", "soon")


def test_without_an_emulator_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(BackendGone) as gone:
        EmulatorClient.from_ready(tmp_path / "none.json")
    assert "tpujob up" in gone.value.hint
    left_over = tmp_path / "old.json"
    left_over.write_text(json.dumps({"control": str(tmp_path / "gone.sock")}))
    with pytest.raises(BackendGone, match="does not answer"):
        EmulatorClient.from_ready(left_over).status()
