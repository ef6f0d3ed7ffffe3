"""The main stories with everything real: processes, gRPC, SSH, storage, SQLite, and the command line."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.local_stack import LocalStack
from tests.support.paths import ROOT
from tests.support.ports import reserved
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)

COUNT = "for i in $(seq 1 600); do echo count $i; sleep 0.2; done"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    local = LocalStack(tmp_path_factory.mktemp("stack"))
    local.run("up")
    yield local
    local.down()


def test_a_command_runs_on_all_hosts_and_its_logs_are_merged(stack: LocalStack) -> None:
    job_id = stack.create("hello", 'echo "hello from $TPUJOB_HOST of $TPUJOB_HOSTS"')
    assert "succeeded" in stack.run("wait", job_id)
    text = stack.run("logs", job_id)
    assert "hello from 0 of 2" in text
    assert "hello from 1 of 2" in text
    assert "hello from 0" not in stack.run("logs", job_id, "--host", "1")
    view = stack.job(job_id)
    assert view["slices"][0]["gone_at"], "a finished job owns no slice"
    assert view["usd_spent"] > 0


PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_about_python_prints_what_it_shows(stack: LocalStack) -> None:
    shown = PAGE.split("\n## HTTP\n")[0]
    job, program, notebook, printed = re.findall(r"```\w*\n(.*?)```", shown, re.S)
    folder = stack.folder / "page"  # what lies beside the job file is its code
    folder.mkdir()
    (folder / "hello.yaml").write_text(job)
    (folder / "train.py").write_text(program)
    words = [sys.executable, "-c", f"{notebook}\nprint(job._repr_html_()[:16])"]
    done = subprocess.run(
        words, env=stack.env, cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert done.stdout == f'{printed}<iframe srcdoc="\n', done.stderr


def test_a_preempted_job_gets_another_slice_and_the_old_one_is_gone(stack: LocalStack) -> None:
    job_id = stack.create("counting", COUNT)
    stack.until(job_id, "running")
    stack.run("emulator", "preempt", job_id, "--notice", "1s")
    view = stack.until(job_id, lambda v: v["state"] == "running" and v["attempt"] == 2)
    first = view["attempts"][0]
    assert (first["outcome"], first["cause"]) == ("interrupted", "PREEMPTED")
    assert view["slices"][0]["gone_at"]
    stack.run("delete", job_id, "--yes")
    stack.until(job_id, "cancelled")


@pytest.mark.slow
def test_several_slices_run_one_program_and_are_lost_as_one(stack: LocalStack) -> None:
    """Multislice: four hosts on two slices; one of these is preempted, so both are replaced."""
    line = 'echo "$TPUJOB_HOST of $TPUJOB_HOSTS on $MEGASCALE_SLICE_ID of $MEGASCALE_NUM_SLICES'
    command = f'{line}, first $MEGASCALE_COORDINATOR_ADDRESS"; [ $TPUJOB_ATTEMPT = 2 ] || sleep 600'
    job_id = stack.create("several", command, tpu={"type": "v4-16", "slices": 2})
    view = stack.until(job_id, "running")
    assert (view["tpu_slices"], view["hosts"], view["chips"]) == (2, 4, 16)
    assert view["usd_per_hour"] == pytest.approx(14.744), "of both"
    assert view["attempt"] == 1, stack.run("why", job_id)
    assert "2 x v4-16" in stack.run("list", "--all")
    shown, name = stack.run("emulator", "status"), view["slices"][0]["name"]
    assert f"{name}-0" in shown
    assert f"{name}-1" in shown

    stack.run("emulator", "preempt", f"{name}-1", "--notice", "0s")
    assert "succeeded" in stack.run("wait", job_id)
    view = stack.job(job_id)
    assert [a["cause"] for a in view["attempts"]] == ["PREEMPTED", None]
    assert [(s["name"], bool(s["gone_at"])) for s in view["slices"]] == [
        (name, True),
        (name.replace(f"tj-{job_id}-1", f"tj-{job_id}-2"), True),
    ]
    first = view["slices"][1]["hosts"][0]
    log = stack.run("logs", job_id, "--attempt", "2")
    for host, of in enumerate((0, 0, 1, 1)):
        assert f"{host} of 4 on {of} of 2, first {first}:8080" in log
    assert f"tj-{job_id}" not in stack.run("emulator", "status"), "nothing is left of either"


def test_cancel_holds_the_slice_and_resume_goes_on_with_it(stack: LocalStack) -> None:
    # emulated hosts show the processes of the whole machine, so this program has a mark of its own
    job_id = stack.create("held", f"{COUNT}; : mark-of-the-held-job")
    stack.until(job_id, "running")
    stack.run("cancel", job_id)
    stack.run("cancel", job_id)
    view = stack.until(job_id, lambda v: v["state"] == "holding" and "held" in v["message"])
    assert "/h" in view["message"], "what a held slice costs is shown"
    pattern = "mark-of-the-held[-]job"
    count = stack.run("ssh", job_id, "--host", "0", "--", "pgrep", "-c", "-f", pattern, code=None)
    assert count.strip() in ("", "0"), "the program is stopped"
    stack.run("resume", job_id)
    view = stack.until(job_id, lambda v: v["state"] == "running" and v["attempt"] == 2)
    assert len(view["slices"]) == 1
    stack.run("clean", job_id, "--yes")
    gone = lambda: "no job" in stack.run("show", job_id, code=None)  # noqa: E731
    until(gone, "clean has removed the record", 60, pause=0.5)


def test_kill_9_of_the_backend_loses_nothing(stack: LocalStack) -> None:
    job_id = stack.create("survivor", "echo started $$; sleep 12; echo finished")
    stack.until(job_id, "running")
    os.kill(stack.ready("backend")["pid"], signal.SIGKILL)
    stack.run("wait", job_id)  # any command starts the next backend
    text = stack.run("logs", job_id)
    assert text.count("started") == 2, f"once on each of the two hosts:\n{text}"
    assert text.count("finished") == 2
    assert stack.job(job_id)["attempt"] == 1


@pytest.mark.slow
def test_two_backends_on_one_state_folder_act_as_one(stack: LocalStack) -> None:
    ready = stack.state / "run" / "second.json"
    command = [sys.executable, "-m", "tpujob.web", "--ready", ready, "--state", stack.state]
    with (stack.folder / "second.log").open("w") as log:
        second = subprocess.Popen(command, env=stack.env, cwd=stack.folder, stdout=log, stderr=log)
    try:
        until(lambda: ready.exists() or second.poll() is not None, "the second backend is up")
        assert second.poll() is None, (stack.folder / "second.log").read_text()
        jobs = [stack.create(f"shared-{n}", "echo started; sleep 3") for n in range(3)]
        for job_id in jobs:
            stack.run("wait", job_id)
            view = stack.job(job_id)
            assert [len(view["slices"]), view["attempt"]] == [1, 1]
            assert stack.run("logs", job_id).count("started") == 2, "once on each of the two hosts"
    finally:
        second.terminate()
        code = second.wait(timeout=60)
    assert code == 0, "it did not finish what it was doing"
    socket = Path(json.loads(ready.read_text())["url"].removeprefix("unix:"))
    assert socket.parent != ready.parent, "it took the socket of the first backend"
    assert not socket.parent.exists(), "it left its own socket"


@pytest.mark.slow
def test_one_host_fails_while_the_other_hangs(stack: LocalStack) -> None:
    command = 'if [ "$TPUJOB_HOST" = 1 ]; then echo broken; exit 3; fi; sleep 600'
    job_id = stack.create("half", command, recovery={"failures": 0})
    view = stack.until(job_id, "failed")
    assert view["cause"] == "CRASH"
    assert "host 1: exit code 3" in view["message"]
    assert view["slices"][0]["gone_at"]


@pytest.mark.slow
def test_ssh_opens_a_real_session_on_the_host_that_is_named(stack: LocalStack) -> None:
    job_id = stack.create("shell", COUNT)
    stack.until(job_id, "running")
    assert stack.run("ssh", job_id, "--host", "1", "--", "echo", "$HOME it's me; $(true)").endswith(
        "$HOME it's me; $(true)\n"
    ), "words are passed on as they are"
    stack.run("ssh", job_id, "--", "sh", "-c", "exit 7", code=7)
    (slice,) = stack.job(job_id)["slices"]
    assert slice["host_keys"] == "published", "the emulated hosts publish theirs"
    stack.run("delete", job_id, "--yes")


SAVES = """
mkdir -p checkpoints/200 && echo weights of host $TPUJOB_HOST > checkpoints/200/params
if [ $TPUJOB_HOST = 0 ]; then sleep 600; fi
python3 -m http.server --bind 127.0.0.1 %d --directory checkpoints >/dev/null 2>&1
"""


@pytest.mark.slow
def test_files_commands_and_ports_of_a_running_job_are_at_hand(stack: LocalStack) -> None:
    with reserved() as port, reserved() as local:
        job_id = stack.create("metre", SAVES % port, outputs="checkpoints")
        stack.until(job_id, "running")
        _copies_files(stack, job_id)
        _runs_commands(stack, job_id)
        _forwards(stack, job_id, local, port)
        stack.run("delete", job_id, "--yes")


def _copies_files(stack: LocalStack, job_id: str) -> None:
    paths = [f"outputs/host-{host}/checkpoints/200" for host in (0, 1)]
    rows = lambda: stack.json("outputs", job_id)["rows"]  # noqa: E731
    saved = until(lambda: (r := rows()) and len(r) == 2 and r, "both hosts saved", 120, pause=1)
    assert [(row["path"], row["step"], row["files"]) for row in saved] == [
        (p, 200, 1) for p in paths
    ]
    assert "tpujob cp" in stack.run("outputs", job_id)

    copied = stack.run("cp", f"{job_id}:outputs/host-*/checkpoints/200", "here")
    assert "Copied 2 objects" in copied
    file = stack.folder / "here/host-1/checkpoints/200/params"
    assert file.read_text() == "weights of host 1\n"
    file.write_text("better")
    stack.run("cp", str(file), f"{job_id}:outputs/mine/")
    stack.run("cp", "metre:outputs/mine", ".")
    assert (stack.folder / "mine/params").read_text() == "better"


def _runs_commands(stack: LocalStack, job_id: str) -> None:
    lines = stack.run("exec", job_id, "--", "sh", "-c", 'echo "$1"', "sh", "it's $HOME")
    assert sorted(lines.splitlines()) == ["0| it's $HOME", "1| it's $HOME"]
    fails = stack.run("exec", job_id, "--", "sh", "-c", "exit 3", code=3)
    assert "exit code 3 on hosts 0, 1" in fails
    assert stack.run("exec", job_id, "--host", "1", "--", "echo", "one") == "one\n"
    stack.run("exec", job_id, "--host", "2", "--", "true", code=3)


def _forwards(stack: LocalStack, job_id: str, local: int, port: int) -> None:
    forward = stack.popen("forward", job_id, f"{local}:{port}", "--host", "1")
    assert forward.stdout is not None
    assert f"http://localhost:{local} leads to port {port} of host 1" in forward.stdout.readline()
    url = f"http://localhost:{local}/200/params"
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.read() == b"weights of host 1\n"
    forward.send_signal(signal.SIGINT)
    assert f"Job {job_id} continues" in forward.communicate(timeout=60)[1]
    assert forward.returncode == 130


@pytest.mark.slow
def test_a_users_own_script_travels_with_the_job_and_resumes(stack: LocalStack) -> None:
    """The story of README.md: a folder of one's own, `code: .`, cancelled and resumed."""
    folder = ROOT / "configs" / "own-script"
    spec = yaml.safe_load((folder / "job.yaml").read_text())
    spec["code"] = str(folder)
    del spec["env"]  # what it imports is here; hosts that lack it are in `test_bare_hosts.py`
    file = stack.folder / "own-script.yaml"
    file.write_text(yaml.safe_dump(spec))
    job_id = stack.json("create", str(file))["id"]
    stack.until(job_id, lambda v: "step 12 of" in stack.run("logs", job_id))
    stack.run("cancel", job_id)
    stack.until(job_id, lambda v: v["state"] == "holding" and "held" in v["message"])
    assert "stopping: saved at step" in stack.run("logs", job_id)
    stack.run("resume", job_id)
    stack.until(job_id, lambda v: "going on from step 1" in stack.run("logs", job_id))
    stack.run("delete", job_id, "--yes")


@pytest.mark.slow
def test_commands_start_the_local_stack_also_after_the_emulator_died(tmp_path: Path) -> None:
    local = LocalStack(tmp_path)
    try:
        assert "quota" in local.run("quota")
        job_id = local.create("stranded", COUNT)
        local.until(job_id, "running")
        os.kill(local.ready("emulator")["pid"], signal.SIGKILL)
        view = local.until(job_id, lambda v: v["message"] != "" and v["state"] == "running")
        assert view["attempt"] == 1, "an answer that does not come is no reason to act"
        local.run("emulator", "status")
        assert local.ready("emulator")["pid"]
        assert local.job(job_id)["state"] != "failed", "and nothing is lost"
    finally:
        local.down()


@pytest.mark.slow
def test_a_type_and_a_zone_that_no_table_has_work_without_a_release(stack: LocalStack) -> None:
    stack.run("up")
    stack.run("emulator", "offer", "mars-north1-a", "v9x-8")
    tpu = {"type": "v9x-8", "zones": ["mars-north1-a"]}
    job_id = stack.create("newest", 'echo "on $TPUJOB_HOST"; sleep 600', tpu=tpu, preflight=True)
    view = stack.until(job_id, "running")
    assert (view["type"], view["zone"], len(view["slices"][0]["hosts"])) == (
        "v9x-8",
        "mars-north1-a",
        1,
    )
    assert (view["usd_per_hour"], view["usd_spent"]) == (None, None), "unknown, not free"
    for command in (["list"], ["show", job_id], ["why", job_id]):
        output = stack.run(*command)
        assert "$0" not in output, output
        assert "unknown" in output or command == ["list"], output
    file = str(stack.folder / "newest.yaml")
    assert "price unknown" in stack.run("create", file, "--dry-run")
    stack.run("delete", job_id, "--yes")
    stack.until(job_id, "cancelled")


@pytest.mark.slow
def test_hosts_behind_a_firewall_are_told_from_bad_hardware(stack: LocalStack) -> None:
    stack.run("up")
    stack.run("emulator", "cut")
    job_id = stack.create("apart", "echo never", preflight=True, recovery={"failures": 0})
    view = stack.until(job_id, "failed")
    stack.run("emulator", "cut", "--off")
    (attempt,) = view["attempts"]
    assert (attempt["cause"], attempt["host"]) == ("SETUP", 1)
    assert attempt["unreached"] == {"source": 1, "target": 0, "port": 8482}
    assert len(view["slices"]) == 1, "other hardware was not asked for"
    assert "`tpujob doctor` prints the missing rule" in " ".join(stack.run("why", job_id).split())
    assert stack.json("hosts") == [], "no machine is suspected"


@pytest.mark.slow
def test_data_of_a_region_and_of_a_folder_is_read_beside_the_slice(stack: LocalStack) -> None:
    folder = stack.folder / "corpus"
    folder.mkdir()
    for part in range(3):
        (folder / f"part-{part}").write_bytes(bytes([part]) * 4096)
    stack.run("data", "sync", "./corpus", "gs://corpora/c4")  # in us-central2
    tpu = {"type": "v5e-4", "zones": ["us-west4-a"]}
    command = "echo $TPUJOB_DATA_C4 and $TPUJOB_DATA_OWN"
    data = ["gs://corpora/c4", {"from": "./corpus", "to": "own"}]
    job_id = stack.create("reader", command, tpu=tpu, data=data)
    assert "succeeded" in stack.run("wait", job_id)
    log = stack.run("logs", job_id)
    assert "gs://tpujob-us-west4/datasets/c4-" in log
    assert "and gs://tpujob-us-west4/datasets/own-" in log
    kinds = [event["kind"] for event in stack.json("events", job_id)]
    assert kinds.index("copy_finished") < kinds.index("slice_requested")
    for row in stack.json("data", "where", job_id, "--epochs", "9")["data"]:
        (place,) = row["places"]
        assert (row["bytes"], place["missing"], place["zones"]) == (12288, 0, ["us-west4-a"])
        stack.run("data", "sync", place["path"], f"./back-{row['name']}")
        back = stack.folder / f"back-{row['name']}"
        assert {f.name: f.read_bytes() for f in back.iterdir()} == {
            f.name: f.read_bytes() for f in folder.iterdir()
        }
    page = stack.run("data", "where", "gs://corpora/c4", "--type", "v5e-4", "--zone", "us-east5-a")
    assert "us-east5-a" in page
    assert "which TPUs will read it?" in stack.run("data", "where", "gs://corpora/c4", code=2)
