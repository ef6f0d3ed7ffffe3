"""A program on a host: its start, its arguments and variables, and the report of its end."""

import ast
import io
import json
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.agent_host import JOB, Host, until
from tests.support.bundles import archive
from tests.support.paths import ROOT
from tpujob.adapters.ssh.agent_calls import build_archive
from tpujob.contract import ProgramContext


def test_the_agent_is_one_archive_for_python_3_8() -> None:
    assert build_archive() == build_archive(), "its hash is its name on a host"
    with zipfile.ZipFile(io.BytesIO(build_archive())) as archive:
        sources = {name: archive.read(name).decode() for name in archive.namelist()}
    shipped = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources
    }
    for name, source in sources.items():
        tree = ast.parse(source, name, feature_version=(3, 8))
        imports = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        imports |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        extra = {"jax", "numpy"} if name.endswith("/devices.py") else set()
        if "/importable/" in name:  # which the Python of a program imports
            extra = {"tpujob_events", "keras", "lightning", "transformers"}
        allowed = {*sys.stdlib_module_names, *extra}
        other = {m for m in imports - shipped if m.partition(".")[0] not in allowed}
        assert not other, f"{name} imports {other}, which do not travel with it"


@pytest.mark.parametrize(
    ("argv", "code", "log"),
    [
        (["true"], 0, []),
        (["no-such-program", "--x"], 127, ["[tpujob] cannot start no-such-program: No such file or directory"]),
        (["/etc"], 126, ["[tpujob] cannot start /etc: Permission denied"]),
        (["bash", "-c", "kill -9 $$"], -9, []),
        (["bash", "-c", "kill -SEGV $$"], -11, []),
        (["bash", "-c", "echo one; echo two >&2; printf 'no newline'; exit 3"], 3, ["one", "two", "no newline"]),
        (["printf", "%s\\n", "$(id)", "; exit 9", "`id`", "a b"], 0, ["$(id)", "; exit 9", "`id`", "a b"]),
    ],
)  # fmt: skip
def test_arguments_output_and_exit_code_arrive_as_they_are(
    host: Host, argv: list[str], code: int, log: list[str]
) -> None:
    report = host.run(argv)
    cause = "SETUP" if code in (126, 127) else None
    assert (report["exit_code"], report["cause"], report["notice"]) == (code, cause, "")
    assert host.bucket.log() == log


def test_a_program_reads_its_context_its_env_and_its_code(host: Host) -> None:
    code = "import json, os; print(json.dumps(dict(os.environ))); print(os.getcwd())"
    bundle = host.bucket.bundle(archive(("mine/__init__.py", ""), ("mine/tell.py", code)))
    host.run(["python3", "-m", "mine.tell"], bundles=[bundle], env={"COLOUR": "a 'b' $C"})
    environment, folder = host.bucket.log()
    variables = json.loads(environment)
    context = ProgramContext.from_env(variables)
    assert (context.job, context.attempt, context.workdir) == (JOB, 1, f"gs://shed/jobs/{JOB}")
    assert Path(context.out) == host.out()
    assert Path(context.cache) == host.home / ".tpujob" / "cache"
    assert Path(context.cache).is_dir()
    assert variables["COLOUR"] == "a 'b' $C"
    assert variables["PYTHONPATH"].split(":")[0] == folder


def test_a_program_imports_its_events_after_all_that_is_its_own(host: Host) -> None:
    program = """
from tpujob_events import INTERRUPTED, stopping, tell
assert not stopping()
tell("step", step=7, steps=9, loss=0.5)
tell("checkpoint", step=7)
raise SystemExit(INTERRUPTED)
"""
    report = host.run(["python3", "-c", program])
    assert (report["exit_code"], report["step"], report["checkpoint"]) == (75, 7, 7)
    (host.home / "lib").mkdir()
    (host.home / "lib" / "tpujob_events.py").write_text("print('of PYTHONPATH')")
    command, library = "python3 -c 'import tpujob_events'", {"PYTHONPATH": str(host.home / "lib")}
    host.run(command, attempt=2, env=library)
    assert host.bucket.log(2) == ["of PYTHONPATH"]
    bundle = host.bucket.bundle(archive(("tpujob_events.py", "print('of the code')")))
    host.run(command, attempt=3, env=library, bundles=[bundle])
    assert host.bucket.log(3) == ["of the code"]
    nothing_else = (
        "import importlib.util as u; print([n for n in ('tpujob', 'contract') if u.find_spec(n)])"
    )
    host.run(["python3", "-S", "-c", nothing_else], attempt=4)
    assert host.bucket.log(4) == ["[]"]


def test_what_the_program_reports_is_in_the_report_and_its_files_are_kept(host: Host) -> None:
    program = """
from tpujob.contract import ProgramContext, Reporter
report = Reporter(ProgramContext.from_env())
report.event("phase", name="train")
report.event("resume", step=5)
report.event("step", step=6, steps=9, loss=0.5, ms=3)
report.event("step", step=7, steps=9, loss=0.25, ms=3)
report.event("checkpoint", step=6)
report.event("metric", name="accuracy", value=0.5)
report.verdict(step=6, device=1)
"""
    host.env["PYTHONPATH"] = str(ROOT)
    report = host.run(["python3", "-c", program])
    expected = {
        "first_step": 6,
        "step": 7,
        "steps": 9,
        "loss": 0.25,
        "checkpoint": 6,
        "resumed_from": 5,
    }
    expected |= {"program_phase": "train", "metrics": {"accuracy": 0.5}}
    assert {name: report[name] for name in expected} == expected
    folder = f"jobs/{JOB}/attempts/1/host-0"
    until(lambda: host.bucket.list(f"{folder}/verdict"), "the verdict in the bucket")
    assert json.loads(host.bucket.read(f"{folder}/verdict.json"))["device"] == 1
    assert host.bucket.read(f"{folder}/events.jsonl").count(b"\n") == 7


def test_invalid_events_of_the_program_are_ignored(host: Host) -> None:
    lines = ["{", "[]", '{"kind": []}', '{"kind":"step","step":"7","loss":NaN}', "\\xff\\x00"]
    arguments = " ".join(f"'{line}'" for line in (*lines, '{"kind":"step","step":1}'))
    report = host.run(f"printf '%b\\n' {arguments} > $TPUJOB_OUT/events.jsonl")
    assert (report["exit_code"], report["step"]) == (0, 1)


def test_child_processes_end_with_the_program(host: Host) -> None:
    host.run("setsid sleep 1000 & (nohup sleep 1001 &) ; sleep 0.2; echo done")
    assert host.bucket.log() == ["done"]
    assert not [c for c in host.processes().values() if "sleep" in c]


def test_set_up_has_its_own_log_lines_and_runs_once(host: Host) -> None:
    setup = "echo getting ready; echo made >> made.txt"
    host.run("cat made.txt", setup=setup)
    assert host.bucket.log() == ["[setup] getting ready", "made"]
    host.run("cat made.txt", attempt=2, setup=setup)
    assert host.bucket.log(2) == ["[tpujob] set-up was done on this host before", "made"]


def test_a_failed_set_up_ends_the_attempt_before_the_program(host: Host) -> None:
    report = host.run("echo never", setup="echo broken; exit 4")
    assert (report["exit_code"], report["cause"]) == (None, "SETUP")
    assert "4" in report["error"]
    assert host.bucket.log()[0] == "[setup] broken"
    assert "never" not in host.bucket.log()


def test_a_failed_command_of_a_pipe_or_of_set_up_counts(host: Host) -> None:
    report = host.run("(echo crash; exit 3) | cat; true")
    assert report["exit_code"] == 0, "the last command of the program counts"
    report = host.run("(echo crash; exit 3) | cat", attempt=2)
    assert report["exit_code"] == 3, "and of a pipe the last one that failed"
    report = host.run("echo never", setup="false\necho after", attempt=3)
    assert (report["exit_code"], report["cause"]) == (None, "SETUP")
    assert "[setup] after" not in host.bucket.log()


def test_a_command_runs_where_there_is_no_bash(host: Host) -> None:
    tools = host.tools({})
    for name in ("sh", "sleep"):
        (tools / name).symlink_to(f"/bin/{name}")
    report = host.run("echo plain", env={"PATH": str(tools)}, setup="echo first")
    assert (report["exit_code"], host.bucket.log()) == (0, ["[setup] first", "plain"])
