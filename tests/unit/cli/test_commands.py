"""Every command through the real entry: what it asks of the backend, what it prints, and how it ends."""

import json
import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.support.commands import Tpujob
from tests.support.scripted import (
    AT,
    ScriptedJobs,
    coming,
    event_view,
    job_view,
    log_line,
    window_line,
)
from tpujob import __version__, errors
from tpujob.api import HostAccess, LogPage, OutputsView, SavedView
from tpujob.cli.app import COMMANDS, build
from tpujob.cli.errors import EXIT_CODES
from tpujob.cli.options import complete_job, moment
from tpujob.cli.render.listing import first_hints

# Make ----------------------------------------------------------------------------------------------------------------


def test_create_submits_once_for_a_key(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    result = tpujob("create", str(job_file))
    for part in ("000002", "counting", "v4-16", "$7.37/h", "tpujob logs 000002 -f"):
        assert part in result.out
    (call,) = api.named("create")
    assert len(call["idempotency_key"]) >= 16
    words = ("create", str(job_file), "--json", "--name", "renamed", "--key", "k")
    job = tpujob(*words).json
    assert (job["id"], job["name"]) == ("000003", "renamed")
    assert tpujob(*words).json["id"] == job["id"]
    assert "name" in tpujob("create", str(job_file), "--name", "A b", code=65).err


@pytest.mark.parametrize("option", ["--dry-run", "--check"])
def test_a_job_that_is_not_submitted_cannot_be_followed(
    tpujob: Tpujob, job_file: Path, option: str
) -> None:
    assert "goes without" in tpujob("create", str(job_file), option, "--follow", code=2).err


@pytest.mark.parametrize("kind", [errors.Transient, errors.BackendGone])
def test_a_create_without_an_answer_can_be_repeated_without_a_second_job(
    tpujob: Tpujob, api: ScriptedJobs, job_file: Path, kind: type[errors.TpujobError]
) -> None:
    create = api.create

    def lose_the_answer(*args: Any, **kwargs: Any) -> None:
        create(*args, **kwargs)
        raise kind("the backend did not answer in time", hint="try again")

    api.create = lose_the_answer  # type: ignore[assignment, method-assign]
    error = tpujob("create", str(job_file), code=kind.exit_code).err
    assert "The job may have been submitted." in error
    assert "try again" not in error
    api.create = create  # type: ignore[method-assign]
    submitted = len(api.jobs)
    tpujob(*error.splitlines()[-1].split()[1:])
    assert len(api.jobs) == submitted


def test_dry_run_submits_nothing(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    plan = tpujob("create", str(job_file), "--dry-run", "--json").json
    assert plan["chips"] == 8
    assert plan["spec"]["name"] == "counting"
    assert "nothing was submitted" in tpujob("create", str(job_file), "--dry-run").out
    assert api.named("create") == []


def test_values_in_options_make_a_sweep(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    def sent(*values: str) -> dict[str, Any]:
        tpujob("create", str(job_file), *(word for value in values for word in ("--set", value)))
        return api.named("create")[-1]["spec"]

    assert sent("run.env.LR=1e-3")["run"]["env"] == {"LR": "1e-3"}
    spec = sent("run.env.LR=1e-3,3e-3", "run.env.TAG='a, b'", "budget.usd=50", "at_once=1")
    assert spec["run"]["env"] == {"LR": "{LR}", "TAG": "a, b"}
    assert (spec["matrix"], spec["at_once"]) == ({"LR": ["1e-3", "3e-3"]}, 1)
    assert spec["budget"] == {"usd": 50.0}
    program = "python3 -m train --lr {lr} --of 1,2"
    assert sent(f"run.command={program}")["run"]["command"] == program
    assert "must be KEY=VALUE" in tpujob("create", str(job_file), "--set", "x", code=65).err
    assert sent("run.env.TAG=")["run"]["env"] == {"TAG": ""}
    empty = tpujob("create", str(job_file), "--set", "tpu.type=", code=65)
    assert "tpu.type: '': no such type" in empty.err
    several = tpujob("create", str(job_file), "--set", "tpu.type=v4-8,v4-16", code=65)
    assert "only keys below run.args and run.env" in several.err
    unknown = tpujob("create", str(job_file), "--set", "rum.env.A=1", code=65)
    assert "did you mean" in unknown.err


def test_create_ships_the_code_folder(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    code = job_file.parent / "code"
    code.mkdir()
    (code / "train.py").write_text("print('hello')")
    job_file.write_text(job_file.read_text() + "code: code\n")
    tpujob("create", str(job_file))
    (bundle,) = api.named("put_bundle")
    path = f"gs://tpujob-us-central2/bundles/{bundle['sha256']}.tar.gz"
    assert api.named("create")[0]["bundles"] == [path]
    assert api.named("create")[0]["code"]["commit"] == "", "it is no checkout"


def test_bad_requirements_are_named(tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path) -> None:
    file, packages = tmp_path / "mlp.yaml", tmp_path / "requirements.txt"
    file.write_text(
        "name: a\ntpu: {type: v4-8}\nrun: {workload: mlp}\ncode: .\nenv: {uv: requirements.txt}\n"
    )
    result = tpujob("create", str(file), code=65)
    assert "env.uv: there is no file requirements.txt in" in result.err
    assert api.named("create") == []
    packages.write_text("optax\n")
    result = tpujob("create", str(file), "--dry-run")
    assert "requirements.txt does not name jax, which mlp needs; without `env`" in result.err
    packages.write_text("jax[tpu]\n")
    assert "jax" not in tpujob("create", str(file), "--dry-run").err


def test_create_shows_plan_warnings(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    api.warnings = ["tpujob does not know the zone us-central2-x\x1b[2J"]
    result = tpujob("create", str(job_file), "--json")
    assert "warning: tpujob does not know the zone us-central2-x\n" in result.err
    assert result.json["id"], "what a script reads stays as it is"


def test_create_refuses_what_the_plan_refuses_before_it_ships_code(
    tpujob: Tpujob, api: ScriptedJobs, job_file: Path
) -> None:
    job_file.write_text(job_file.read_text() + "code: .\n")
    why = "data: gs://nowhere/x: there is no bucket gs://nowhere"
    api.refused = [{"message": why, "hint": "make it"}]
    output = tpujob("create", str(job_file), code=65).err
    assert output.splitlines() == [f"tpujob: {job_file}: {why}", "  make it"]
    assert api.named("put_bundle") == api.named("create") == []
    result = tpujob("create", str(job_file), "--dry-run", code=65)
    text = f"{why}; the job cannot be submitted before it can be read"
    assert text in " ".join(result.out.split())
    assert result.err == output, "with the words of create"


def test_create_ships_allowed_keys_only(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    (job_file.parent / ".env").write_text("TOKEN=1")
    job_file.write_text(job_file.read_text() + "code: .\n")
    refused = tpujob("create", str(job_file), code=65).err
    assert "1 file of" in refused
    assert refused in tpujob("create", str(job_file), "--dry-run", code=65).err
    assert "--allow-keys" in refused
    assert api.named("put_bundle") == api.named("create") == []
    assert "code: .env looks like a key" in tpujob("create", str(job_file), "--allow-keys").err
    assert len(api.named("create")) == 1


def test_diff_shows_what_differs(tpujob: Tpujob, api: ScriptedJobs) -> None:
    code = {"commit": "0123456789abcdef" * 2, "branch": "main", "dirty": True, "diff": "gs://b/d"}
    api.jobs["000001"] = job_view("000001", code=code)
    api.jobs["000002"] = job_view("000002", bundles=["gs://b/bundles/x.tar.gz"])
    text = tpujob("diff", "1", "2").out
    assert "run.command  true -> false" in text
    assert "a: 0123456789ab on main, with changes (gs://b/d)" in text
    assert "b: files without a commit" in text
    assert "changed  train.py\n@@ -1 +1 @@\n-one\n+two" in text
    assert tpujob("diff", "1", "2", "--json").json["files"][0]["path"] == "train.py"
    assert "0123456789ab on main, with changes" in tpujob("show", "1").out
    tpujob("diff", "1", "3", code=3)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("name: x\ntpu: {type: v4-17}\nrun: {command: a}\n", "v4-17"),
        ("name: $(reboot)\ntpu: {type: v4-8}\nrun: {command: a}\n", "reboot"),
        ("\tname: x", "tab"),
        (None, "there is no such file"),
    ],
)
def test_a_bad_file_is_explained_and_nothing_is_submitted(
    tpujob: Tpujob, api: ScriptedJobs, job_file: Path, text: str | None, named: str
) -> None:
    job_file.unlink() if text is None else job_file.write_text(text)
    result = tpujob("create", str(job_file), code=65)
    assert named in result.err
    assert "job.yaml" in result.err
    assert api.calls == []


def test_errors_name_file_and_versions(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    api.raises = errors.BadSpec("tpu.zones: us-central2-b has no v5p-16", hint="elsewhere")
    result = tpujob("create", str(job_file), code=65)
    message = f"tpujob: {job_file}: {api.raises.message}\n  elsewhere\n"
    assert result.err.startswith(f"{message}  The backend at ")
    assert result.err.endswith(
        f" is tpujob 0.0.test, this command is {__version__}: restart it: tpujob down, then tpujob up\n"
    )


def test_create_follow_ends_with_the_job(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    last = coming("nothing", "nothing by itself", "tpujob resume 000002")
    ends = {"queued": {}, "running": {}, "failed": {"why": "exit code 3 on host 1", "next": last}}
    api.script = [job_view("000002", state=state, **fields) for state, fields in ends.items()]
    api.happened["000002"] = [
        event_view(1, "queued", "ada submitted counting"),
        event_view(2, "running", "attempt 1 runs on 2 hosts"),
        event_view(3, "failed", "failed: exit code 3 on host 1"),
    ]
    result = tpujob("create", str(job_file), "--follow", code=1)
    positions = [result.out.index(e["text"]) for e in api.happened["000002"]]
    assert positions == sorted(positions)
    assert result.out.count("attempt 1 runs on 2 hosts") == 1, "each event once"
    assert "tpujob resume 000002" in result.out


# Look ----------------------------------------------------------------------------------------------------------------


def test_list_prints_a_table_and_json_a_list(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.jobs["000043"] = job_view("000043", name="old", user="eve", state="failed")
    assert "digits" in tpujob("list").out
    assert "old" not in tpujob("list").out
    assert "old" in tpujob("list", "--all").out
    assert [j["id"] for j in tpujob("list", "--all", "--user", "eve", "--json").json] == ["000043"]
    assert tpujob("list", "--user", "nobody", "--json").json == []


def test_what_a_list_is_narrowed_to_reaches_the_backend(tpujob: Tpujob, api: ScriptedJobs) -> None:
    def filters(*words: str) -> dict[str, Any]:
        tpujob("list", *words)
        request = api.named("list")[-1]
        return {name: value for name, value in request.items() if value and name != "limit"}

    assert filters() == {"recent": True}
    assert filters("--all") == {}
    named = {"recent": True, "states": ["failed", "running"]}
    assert filters("--state", "failed", "--state", "running") == named
    of_cause = {"recent": True, "causes": ["OOM_HBM"], "mine": True}
    assert filters("--cause", "OOM_HBM", "--mine") == of_cause
    narrowed = filters("--type", "v4-16", "--zone", "us-central2-b", "--text", "llama", "-r")
    assert narrowed == {
        "recent": True,
        "types": ["v4-16"],
        "zones": ["us-central2-b"],
        "text": "llama",
        "reverse": True,
    }
    assert filters("--order", "left")["order"] == "left"
    for n in range(50, 60):
        api.jobs[f"{n:06d}"] = job_view(f"{n:06d}")
    assert len(tpujob("list", "--limit", "3", "--json").json) == 3
    api.jobs.clear()
    assert tpujob("list", "--zone", "x").out == "No matching jobs (0 in all).\n"


def test_jobs_of_a_sweep_are_listed_and_named_by_a_range(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.jobs["000049"] = job_view("000049", name="sweep")
    for n in range(4):
        row = job_view(f"{50 + n:06d}", name=f"sweep-{n}", params={"lr": f"{n}e-3"})
        api.jobs[f"{50 + n:06d}"] = row
    listed = tpujob("list", "--group", "sweep").out
    request = api.named("list")[-1]
    assert (request["group"], request["order"], request["reverse"]) == ("000049", "id", True)
    assert "lr=3e-3" in listed
    assert "lr=3e-3" not in tpujob("list", "--group", "sweep", "--columns", "id,name").out
    for option in ("--columns=id", "--group=sweep"):
        tpujob("list", option, "--html", "/nowhere/x.html", code=2)
    assert tpujob("cancel", "sweep-[1-3]").out.count("Job 00005") == 3
    assert [c["job"] for c in api.named("cancel")] == ["sweep-1", "sweep-2", "sweep-3"]
    missing = tpujob("cancel", "sweep-[7-9]", code=3).err
    assert (missing.count("sweep-8"), missing.count("list --all")) == (1, 1)
    assert "of 1000 jobs at most" in tpujob("cancel", "sweep-[1-9999]", code=2).err


def test_show_says_how_the_jobs_of_a_sweep_stand(tpujob: Tpujob, api: ScriptedJobs) -> None:
    failed = {"id": "000052", "name": "sweep-2", "state": "failed", "cause": "CRASH", "why": "3"}
    elements = {"running": 8, "failed": 1}
    whole = {"group_size": 24, "elements": elements, "step": None, "state": "running"}
    api.jobs["000042"] = job_view(**whole, worst=[failed])
    assert "1 of 24" in tpujob("list").out
    assert "logs" not in tpujob("resume", "42").out, "each element has its own"
    for command in ("show", "why"):  # its record changed at its creation alone
        title = tpujob(command, "42").out.splitlines()[0]
        assert title.endswith("running")
    output = tpujob("show", "42").out
    assert "Elements  24 in all, 8 running, 1 failed" in output
    assert "Failed    sweep-2 (000052) CRASH: 3" in output
    best = {"id": "000053", "name": "sweep-3", "loss": 0.25, "params": {"lr": "0.001", "seed": "1"}}
    api.jobs["000042"] = job_view(state="running", group_size=24, attempts=[], step=None, best=best)
    assert "Best      sweep-3 (000053), loss 0.25: lr=0.001 seed=1" in tpujob("show", "42").out
    assert "no step reported" not in tpujob("why", "42").out
    params = {"lr": "0.001", "seed": "0"}
    api.jobs["000042"] = job_view(group="000041", index=7, group_size=24, params=params)
    assert "Element   7 of 24 of job 000041: lr=0.001 seed=0" in tpujob("show", "42").out


def test_an_empty_list_says_what_there_is_else(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.jobs.clear()
    first = "No jobs.\nMake the first one:\n  tpujob run --type v4-8 -- echo hello\n"
    demo = "See one run from start to end, preemption included:\n  tpujob demo\n"
    assert tpujob("list").out == first + demo
    assert first_hints(submits=True, local=False) == [first.strip().partition("\n")[2]]
    assert first_hints(submits=False, local=True) == []
    api.jobs["000043"] = job_view("000043", user="eve", state="failed")
    assert "`tpujob list --all` shows" in tpujob("list").out
    assert "`tpujob list --all --user eve` shows" in tpujob("list", "--user", "eve").out
    assert tpujob("list", "--all", "--user", "bob").out == "There is no job of bob.\n"


def test_a_page_of_the_list_that_cannot_be_written(tpujob: Tpujob) -> None:
    error = tpujob("list", "--html", "/nowhere/x.html", code=2).err
    assert "cannot write /nowhere/x.html: No such file or directory" in error


def test_show_takes_ids_and_names(tpujob: Tpujob) -> None:
    for ref in ("42", "000042", "digits"):
        assert "Job 000042" in tpujob("show", ref).out
        view = tpujob("show", ref, "--json").json
        assert (view["id"], view["created_at"]) == ("000042", AT)


@pytest.mark.parametrize("name", ["$(reboot)", "../../etc", "\x1b[31mx"])
def test_a_hostile_name_is_only_a_name_that_is_not_there(tpujob: Tpujob, name: str) -> None:
    result = tpujob("show", name, code=3)
    assert "no job" in result.err
    assert "\x1b" not in result.err


def test_logs_merge_hosts_with_prefixes_json_is_a_list(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.pages = [
        LogPage(lines=[log_line(0, "a"), log_line(1, "\x1b[2Jb")], cursor="", done=False),
        LogPage(lines=[log_line(0, "c")], cursor="", done=True),
    ]
    assert tpujob("logs", "42").out == "0| a\n1| b\n0| c\n"
    assert [line["host"] for line in tpujob("logs", "42", "--json").json] == [0, 1, 0]
    tpujob("logs", "42", "--host", "1", "--attempt", "2", "--tail", "5")
    request = api.named("logs")[-1]
    assert (request["host"], request["attempt"], request["tail"]) == (1, 2, 5)
    api.pages = []
    assert tpujob("logs", "42").out == ""
    assert tpujob("logs", "42", "--json").json == []


def test_logs_end_at_the_last_line_there_is_and_follow_at_the_end_of_the_job(
    tpujob: Tpujob, api: ScriptedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpujob.cli.commands.logs.POLL", 0.01)
    api.pages = [
        LogPage(lines=[log_line(0, "a")], cursor="", done=False),
        LogPage(lines=[], cursor="", done=False),
        LogPage(lines=[log_line(0, "later")], cursor="", done=True),
    ]
    assert tpujob("logs", "42").out == "0| a\n"
    assert tpujob("logs", "-f", "42").out == "0| a\n0| later\n"
    lines = tpujob("logs", "-f", "42", "--json").out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["a", "later"]
    assert tpujob("logs", "-f", "42", "--tail", "1", "--host", "0").out == "a\nlater\n"
    assert api.named("log_block")[-1]["cursor"], "it goes on behind the last lines"


def test_json_has_no_character_that_a_terminal_obeys(tpujob: Tpujob, api: ScriptedJobs) -> None:
    text = "\x1b[2J\x9b2J\x7f\u202e訓"
    api.pages = [LogPage(lines=[log_line(0, text)], cursor="", done=True)]
    whole, followed = tpujob("logs", "42", "--json"), tpujob("logs", "-f", "42", "--json").out
    assert (whole.json[0]["text"], json.loads(followed)["text"]) == (text, text)
    for output in (whole.out, followed):
        assert {c for c in output if not c.isprintable()} == {"\n"}
        assert "訓" in output


def test_raw_logs_are_what_the_program_wrote(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.pages = [
        LogPage(lines=[log_line(0, "\x1b[1ma"), log_line(1, "3 4.5")], cursor="", done=True)
    ]
    assert tpujob("logs", "42", "--raw").out == "\x1b[1ma\n3 4.5\n"


def test_raw_logs_have_no_line_of_the_agent_or_of_set_up(tpujob: Tpujob, api: ScriptedJobs) -> None:
    texts = (
        "[tpujob] pre-flight: ok",
        "[setup] pip install",
        "a [tpujob] b",
        "[tpujob]c",
        "[stack] d",
    )
    api.pages = [LogPage(lines=[log_line(1, text) for text in texts], cursor="", done=True)]
    assert tpujob("logs", "42", "--raw").out == "a [tpujob] b\n[tpujob]c\n"


def test_logs_of_a_time(tpujob: Tpujob, api: ScriptedJobs) -> None:
    lines = [log_line(0, "a"), log_line(1, "b")]
    api.pages = [LogPage(lines=lines, cursor="", done=True)]
    moment = datetime.fromisoformat(lines[0]["at"])
    local = moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert tpujob("logs", "42", "--times").out == f"0| {local} a\n1| {local} b\n"
    assert tpujob("logs", "42", "-t", "--host", "1").out.splitlines()[1] == f"{local} b"
    before, after = (f"{moment + timedelta(seconds=s):%Y-%m-%dT%H:%M:%S}Z" for s in (-1, 1))
    assert tpujob("logs", "42", "--until", after).out == "0| a\n1| b\n"
    assert tpujob("logs", "42", "--until", before, "--json").json == []
    tpujob("logs", "42", "--since", before)
    assert api.named("logs")[-1]["since"] == moment.timestamp() - 1
    tpujob("logs", "42", "--since", "1h30m")
    assert time.time() - api.named("logs")[-1]["since"] == pytest.approx(5400, abs=600)
    for words in (("--since", "soon"), ("--since", "25:00"), ("--until", "2026-13-01")):
        assert "is not a time such as 10m" in tpujob("logs", "42", *words, code=2).err


def test_a_time_of_day_is_the_last_one() -> None:
    for text in ("00:00", "23:59", "9:30", "12:00:30"):
        assert 0 <= time.time() - moment(text) < 2 * 86400
        hour, minute = text.split(":")[:2]
        at = datetime.fromtimestamp(moment(text))
        assert (at.hour, at.minute) == (int(hour), int(minute))


def test_lines_that_are_looked_for_have_their_numbers(tpujob: Tpujob, api: ScriptedJobs) -> None:
    grep = ("logs", "42", "--grep", "nan")
    assert tpujob(*grep).err == "tpujob: no match in this attempt; --attempt N searches another\n"
    matches = [window_line(0, 7, "loss nan"), window_line(1, 123, "\x1b[2Jnan")]
    api.matches |= {"matches": matches, "matching": 2}
    assert tpujob(*grep).out == "0| 7: loss nan\n1| 123: nan\n"
    assert tpujob(*grep, "--host", "1").out.splitlines()[1] == "123: nan"
    assert [x["line"] for x in tpujob(*grep, "--json").json] == [7, 123]
    assert tpujob("logs", "42", "--grep", "N.n", "-E", "-i", "--count").out == "2\n"
    request = api.named("log_search")[-1]["query"]
    assert (request["text"], request["regexp"], request["ignore_case"]) == ("N.n", True, True)


def test_a_line_is_shown_with_those_around_it(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.window["lines"] = [window_line(1, 7, "x", cut=9)]
    result = tpujob("logs", "42", "--host", "1", "--line", "7", "--around", "0")
    assert result.out == "7: x ... 9 bytes more\n"
    place = api.named("log_window")[-1]["query"]
    assert (place["host"], place["of"], place["line"]) == (1, 1, 7)
    tpujob("logs", "42", "--host", "1", "--line", "7")
    sides = [(x["query"]["side"], x["query"]["lines"]) for x in api.named("log_window")[-2:]]
    assert sides == [("before", 10), ("after", 10)]
    assert "host 0 has no line 8" in tpujob("logs", "42", "--line", "8", code=3).err


def test_tracebacks_are_shown_by_their_numbers(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.matches["matches"] = [window_line(1, 7, "Traceback"), window_line(0, 9, "Traceback")]
    api.matches["matching"] = 2
    api.window["lines"] = [window_line(1, 7, "Traceback")]
    result = tpujob("logs", "42", "--traceback", "1", "--around", "0")
    assert result.out == "7: Traceback\n"
    assert "traceback 1 of 2, host 1; the next: --traceback 2" in result.err
    api.window["lines"] = [window_line(0, 9, "Traceback")]
    assert "traceback 2 of 2, host 0\n" in tpujob("logs", "42", "--traceback", "-1").err
    assert "no traceback 3" in tpujob("logs", "42", "--traceback", "3", code=3).err


@pytest.mark.parametrize(
    "words",
    [
        *(
            "--grep x --line 1",
            "--grep x -f",
            "--line 1 --tail 3",
            "--raw --json",
            "-c",
            "-E",
            "-i -f",
        ),
        *("--grep x --times", "--raw --since 1m", "--since 1m --tail 3"),
    ],
)
def test_options_of_logs_that_contradict_each_other_are_refused(tpujob: Tpujob, words: str) -> None:
    assert "go" in tpujob("logs", "42", *words.split(), code=2).err


def test_events(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.happened["000042"] = [event_view(1, "queued", "asked"), event_view(2, "running", "runs")]
    result = tpujob("events", "42")
    assert result.out.splitlines()[1].split() == ["03:04:05", "running", "runs"]
    assert [e["seq"] for e in tpujob("events", "42", "--json").json] == [1, 2]
    api.jobs["000042"] = job_view(state="succeeded")
    assert tpujob("events", "42", "--follow").out == result.out
    lines = tpujob("events", "42", "-f", "--json").out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2]
    for words in ("--limit 1", "--kind slice_gone"):
        assert "without a job" in tpujob("events", "42", *words.split(), code=2).err


@pytest.mark.parametrize(("end", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 5)])
def test_wait_ends_as_the_job_does(tpujob: Tpujob, api: ScriptedJobs, end: str, code: int) -> None:
    api.script = [job_view(), job_view(version=8), job_view(version=9, state=end)]
    assert end in tpujob("wait", "42", code=code).out
    assert tpujob("wait", "42", "--json", code=code).json["state"] == end


def test_wait_gives_up_after_its_timeout(tpujob: Tpujob) -> None:
    result = tpujob("wait", "42", "--timeout", "0.2", code=124)
    assert "running" in result.out
    assert tpujob("wait", "42", "--timeout", "1s", code=124).out == result.out
    result = tpujob("wait", "42", "--timeout", "soon", code=2)
    assert "'soon' is not a time such as 90s, 15m or 1h30m" in result.err


# Steer ---------------------------------------------------------------------------------------------------------------


def test_cancel_resume_delete_and_clean_do_what_they_say(tpujob: Tpujob, api: ScriptedJobs) -> None:
    next_ = coming("release_slice", "the slice is released", "tpujob resume 000042", at=AT)
    api.jobs["000042"] = job_view(state="holding", next=next_, message="held, at $7.37/h")
    output = tpujob("cancel", "42").out
    assert "held, at $7.37/h" in output
    assert "the slice is released; `tpujob resume 000042` resumes it" in output
    assert tpujob("cancel", "42", "--release", "--json").json["desired"] == "release"
    assert [c["release"] for c in api.named("cancel")] == [False, True]
    output = tpujob("resume", "42").out
    assert "tpujob show 000042" in output
    assert "tpujob logs 000042 -f" in output
    assert tpujob("resume", "42", "--json").json["id"] == "000042"
    assert tpujob("delete", "42", "--yes", "--json").json["desired"] == "release"
    assert tpujob("clean", "42", "--yes", "--checkpoints", "--json").json["desired"] == "clean"
    assert api.named("clean") == [{"job": "42", "checkpoints": True}]


def test_ssh_without_a_host_that_can_be_reached(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert "no host" in tpujob("ssh", "42", code=4).err
    empty = dict.fromkeys(("certificate", "expires_at", "instance", "zone", "project"), "")
    access = {"host": 1, "address": "127.0.0.1", "port": 1, "user": "u", "host_keys": [], **empty}
    api.host_access = cast(HostAccess, access)
    result = tpujob("ssh", "42", "--host", "1", "--", "ls", "-la", code=1)
    assert "no host key is pinned" in result.err
    requests = api.named("access")
    assert (requests[-1]["job"], requests[-1]["host"]) == ("42", 1)
    keys = {request["key"] for request in requests}
    assert len(keys) == 2, "two sessions had one key"
    assert all(key.startswith("ssh-ed25519 ") for key in keys)


def test_exec_without_a_host_that_can_be_reached(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert "no host" in tpujob("exec", "42", "--", "true", code=4).err
    assert {request["host"] for request in api.named("access")} <= {0, 1}, "those of its slice"
    assert "no host" in tpujob("exec", "42", "--host", "7", "--", "true", code=4).err
    assert api.named("access")[-1]["host"] == 7


@pytest.mark.parametrize("ports", ["", "0", "70000", "a", "1:2:3", "6006:", "-1"])
def test_what_is_no_port_is_not_forwarded(tpujob: Tpujob, api: ScriptedJobs, ports: str) -> None:
    assert "is not a port" in tpujob("forward", "42", "--", ports, code=2).err
    assert "is not PORT:HOST:PORT" in tpujob("ssh", "42", "-L", "6006", code=2).err
    assert not api.named("access")


def test_forward_without_a_host_that_can_be_reached(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert "no host" in tpujob("forward", "42", "6006", "--host", "1", code=4).err
    assert api.named("access")[-1]["host"] == 1


def test_outputs_are_listed_with_their_steps(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert "No checkpoints and outputs." in tpujob("outputs", "42").out
    rows = [
        SavedView(path="checkpoints/200", step=200, files=12, bytes=3 << 30, age_s=300.0),
        SavedView(path="outputs/host-0/loss.csv", step=None, files=1, bytes=80, age_s=7200.0),
    ]
    facts = {"id": "000042", "workdir": "gs://b/jobs/000042", "checkpoint": 200, "rows": rows}
    api.saved |= cast(OutputsView, {**facts, "earlier": ["gs://a/jobs/000042"]})
    assert tpujob("outputs", "42").out.splitlines() == [
        "Path                    Step Files    Size Age",
        "checkpoints/200          200    12 3.0 GiB  5m",
        "outputs/host-0/loss.csv    -     1    80 B  2h",
        "The newest checkpoint that every host has: step 200.",
        "In gs://b/jobs/000042",
        "Before that in 1 other folder: --json",
        "  copy: tpujob cp 000042:checkpoints/200 .",
    ]
    assert tpujob("outputs", "42", "--json").json["rows"] == rows
    api.saved["complete"] = False
    assert "There are more" in tpujob("outputs", "42").out


# About tpujob --------------------------------------------------------------------------------------------------------


def test_version_and_schema(tpujob: Tpujob) -> None:
    assert tpujob("version").out == f"tpujob {__version__}\n" == tpujob("--version").out
    assert tpujob("version", "--json").json == {"version": __version__}
    assert "tpu" in tpujob("schema").json["properties"]


def test_status_says_what_runs(tpujob: Tpujob) -> None:
    record = {p["name"]: p for p in tpujob("status", "--json").json}
    assert record["backend"]["running"]
    assert record["backend"]["url"].startswith("unix:/")
    assert not record["emulator"]["running"]
    assert record["backend"]["health"]["ok"]
    assert re.search(r"\nLast pass: \d+[dhms] ago\n", tpujob("status").out)
    lines = tpujob("status").out.splitlines()
    assert next(line for line in lines if "emulator" in line).split()[1] == "down"


def test_serve_checks_members_and_folder_before_it_stops_the_backend(
    tpujob: Tpujob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpujob.wiring.client.make_way", lambda _: pytest.fail("it was stopped"))
    words = ("serve", "--socket", str(tmp_path / "shared" / "a" / "s"))
    missing = ("--context", "nosuch", "--members", "/nowhere/members")
    assert "there is no context 'nosuch'" in tpujob("serve", *missing, code=3).err
    members = ("--members", "/nowhere/members")
    assert "/nowhere/members: there is no such file" in tpujob(*words, *members, code=65).err
    assert "tpujob: cannot make the folder" in tpujob(*words, code=2).err


def test_down_without_a_stack(tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUJOB_STATE", str(tpujob.state.parent / "another"))
    assert "the local stack is down" in tpujob("down").out


def test_help_names_every_command_and_every_exit_code(tpujob: Tpujob) -> None:
    text = tpujob("--help").out
    assert [name for name in COMMANDS if f"\n  {name} " not in text] == []
    for code, meaning in EXIT_CODES.items():
        assert any(line.split()[:1] == [str(code)] and meaning in line for line in text.split("\n"))
    assert max(map(len, text.split("\n"))) <= 80
    assert tpujob(code=2).err == text, "without a command"


def test_every_help_text_is_complete() -> None:
    """Summaries fit their list, every option is explained, and no type of Python is shown. The list of commands says
    what each command says itself."""

    def walk(path: str, command: Any) -> list[str]:
        context = command.context_class(command, info_name=path, max_content_width=80)
        usage, _, text = command.get_help(context).partition("\n")
        assert usage.startswith(f"Usage: {path} ")
        wrong = [f"{path}: {line}" for line in text.splitlines() if line.endswith("...")]
        wrong += [f"{path}: {p.name} has no help" for p in command.params if not p.help]
        wrong += [f"{path}: {word}" for word in ("<int", "<float", "range") if word in text]
        if isinstance(command, TyperGroup):
            for name in command.list_commands(context):
                wrong += walk(f"{path} {name}", command.get_command(context, name))
        return wrong

    whole: Any = get_command(build())
    assert walk("tpujob", whole) == []
    helps = {name: whole.commands[name].help.split("\n\n")[0] for name in COMMANDS}
    assert {n: " ".join(t.split()) for n, t in helps.items()} == {
        name: entry.summary for name, entry in COMMANDS.items()
    }


def test_the_table_of_exit_codes_has_every_error() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type)]
    assert {k.exit_code for k in kinds if issubclass(k, errors.TpujobError)} <= set(EXIT_CODES)


@pytest.mark.parametrize("words", ["nonsense", "show", "list --nonsense", "logs 42 --host -1"])
def test_an_invalid_command_line_is_a_usage_error(tpujob: Tpujob, words: str) -> None:
    result = tpujob(*words.split(), code=2)
    assert result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("verb", ["cancel", "resume", "delete", "clean"])
def test_one_command_steers_several_jobs(tpujob: Tpujob, api: ScriptedJobs, verb: str) -> None:
    api.jobs["000043"] = job_view("000043", name="other")
    yes = ["--yes"] if verb in ("delete", "clean") else []
    result = tpujob(verb, *yes, "42", "99", "other", code=3)
    assert "Job 000042" in result.out
    assert "Job 000043" in result.out
    assert "no job is called '99'" in result.err
    result = tpujob(verb, *yes, "42", "43", "--json")
    assert [json.loads(line)["id"] for line in result.out.splitlines()] == ["000042", "000043"]


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [errors.BadSpec, errors.HostKeyChanged])
def test_an_error_of_the_backend_is_printed_with_its_hint_and_exit_code(
    tpujob: Tpujob, api: ScriptedJobs, kind: type[errors.TpujobError]
) -> None:
    message = "what \x1b[31mhappened"
    api.raises = kind(message, hint="what to do")
    result = tpujob("cancel", "42", code=kind.exit_code)
    assert (result.out, result.err) == ("", "tpujob: what happened\n  what to do\n")
    result = tpujob("cancel", "42", "--json", code=kind.exit_code)
    facts = {"type": kind.__name__, "message": message, "hint": "what to do"}
    assert result.out == ""
    assert json.loads(result.err) == {"error": facts | {"exit_code": kind.exit_code}}


def test_a_wrong_command_line_with_json_is_answered_as_json(tpujob: Tpujob) -> None:
    result = tpujob("list", "--json", "--stat", code=2)
    error = json.loads(result.err)["error"]
    assert (error["type"], error["exit_code"]) == ("BadRequest", 2)
    assert "--stat" in error["message"]


def test_a_silent_backend_has_a_log_shown(tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpujob.config.stack_processes.DYING", 0.1)
    ready = tpujob.state / "run" / "backend.json"
    ready.write_text(
        json.dumps(json.loads(ready.read_text()) | {"url": "unix:/nowhere/backend.sock"})
    )
    result = tpujob("cancel", "42", code=69)
    assert "tpujob up" in result.err
    assert str(tpujob.state / "run" / "backend.log") in result.err
    monkeypatch.setattr("tpujob.wiring.retrying.RetryingClient.timeout", 0.5)
    assert tpujob("wait", "42", code=69).err.count("trying again") == 1


def test_completion_offers_jobs_and_never_fails(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert dict(complete_job(""))["digits"] == "000042, running"
    assert [value for value, _ in complete_job("0000")] == ["000042"]
    api.raises = RuntimeError("down")
    assert complete_job("") == []
