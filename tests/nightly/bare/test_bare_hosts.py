"""Jobs on hosts that have only what a TPU VM has: the files of `configs/`, and every kind of `env:`.

What a host gets from the internet comes from `tests/support/mirror.py`; each job says so in `run.env`, and is otherwise
what its file says. `make nightly ONLY=bare` runs them, and downloads 2 GB.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import mirror
from tests.support.local_stack import LocalStack
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"


def runs_here(text: str) -> bool:
    """Return whether the job needs neither a real TPU nor data that its user has to make first."""
    return "Not tested on a TPU." not in text and "data" not in yaml.safe_load(text)


FILES = sorted(
    path.relative_to(CONFIGS).as_posix()
    for path in CONFIGS.rglob("*.yaml")
    if runs_here(path.read_text())
)
LONG = 900.0  #: seconds for a job whose hosts all make an environment and train
PREFIX = "[tpujob] environment: "


class BareStack(LocalStack):
    """A local stack with bare hosts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.variables = mirror.variables(folder / "mirror")
        self.run("up")
        lines = self.run("emulator", "profile", "bare")
        assert "hosts that come up from now on are bare" in lines

    def submit(self, config: str, **changes: Any) -> str:
        """A job of a file in `configs/`, with these values instead of its own; its id."""
        file = CONFIGS / config
        spec = yaml.safe_load(file.read_text())
        if spec.get("code"):
            spec["code"] = str(file.parent / spec["code"])
        return self._submit({**spec, **changes})

    def job_with(self, name: str, command: str, **fields: Any) -> str:
        """A job of one host that runs a command; its id."""
        spec = {"name": name, "tpu": {"type": "v4-8"}, "run": {"command": command}, **fields}
        return self._submit({"stop_grace": "3s", "preflight": False, **spec})

    def _submit(self, spec: Mapping[str, Any]) -> str:
        run = {**spec["run"], "env": {**spec["run"].get("env", {}), **self.variables}}
        file = self.folder / f"{spec['name']}.yaml"
        file.write_text(yaml.safe_dump({**spec, "run": run}))
        return self.json("create", str(file))["id"]

    def ended(self, job: str) -> Mapping[str, Any]:
        """Return the job's view once it has ended."""
        return self.until(job, lambda view: view["state"] in ("succeeded", "failed"), LONG)

    def notes(self, job: str, attempt: int = 1) -> list[str]:
        """Return the notes of the agents on environments."""
        lines = self.run("logs", job, "--attempt", str(attempt)).splitlines()
        return [line.partition(PREFIX)[2] for line in lines if PREFIX in line]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareStack]:
    stack = BareStack(tmp_path_factory.mktemp("bare"))
    yield stack
    slices = stack.json("emulator", "status")["slices"]
    stack.down()
    assert slices == [], f"no story may leave a slice behind: {slices}"


def brief(view: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return outcome and cause of each attempt."""
    return [(attempt["outcome"], attempt["cause"]) for attempt in view["attempts"]]


# The bundled programs ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_bundled_program_brings_what_it_needs_and_later_slices_fetch_it(bare: BareStack) -> None:
    run = {"workload": "mlp", "args": {"dataset": "synthetic", "hidden": "32", "steps": 20}}
    first = bare.submit("mlp.yaml", run=run, name="small")
    view = bare.ended(first)
    assert brief(view) == [("succeeded", None)], bare.run("why", first)
    notes = bare.notes(first)
    assert re.match(
        r"this host's Python \S+ has no jax \(\d+ packages differ\)|this host has Python 3",
        notes[0],
    )
    assert notes[0].endswith("so one is made of workloads/requirements.lock")
    assert any(" was built with uv in " in line for line in notes)
    second = bare.submit("mlp.yaml", run=run, name="again")
    assert brief(bare.ended(second)) == [("succeeded", None)], bare.run("why", second)
    assert " was fetched from the bucket in " in bare.notes(second)[-1]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", FILES)
def test_every_file_of_configs_runs_on_bare_hosts(bare: BareStack, file: str) -> None:
    """One of them through a preemption. The jobs of a group have one attempt each."""
    job, attempts = bare.submit(file), 1
    if file == "quickstart.yaml":
        bare.until(job, lambda view: (view["checkpoint"] or 0) > 0, LONG)
        bare.run("emulator", "preempt", job, "--notice", "5s")
        attempts = 2
    done = bare.ended(job)
    assert done["state"] == "succeeded", bare.run("why", job)
    elements = bare.json("list", "--all", "--group", job) if done["group_size"] else [done]
    assert len(elements) == (done["group_size"] or 1)
    assert {element["attempt"] for element in elements} == {attempts}, bare.run("why", job)


# Every kind of environment -------------------------------------------------------------------------------------------

TINY = "import sys, tabulate; print('tabulate', tabulate.__version__, sys.version.split()[0])"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text("tabulate==0.9.0\n")
    (tmp_path / "environment.yml").write_text(
        "channels: [conda-forge]\ndependencies: [python=3.11, tabulate=0.9.0]\n"
    )
    return tmp_path


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("env", "python"),
    [
        ({"uv": "requirements.txt"}, r"3\.\d+\."),
        pytest.param(
            {"uv": "requirements.txt", "python": "3.11"}, r"3\.11\.", marks=pytest.mark.long
        ),
        pytest.param({"pip": "requirements.txt"}, r"3\.\d+\.", marks=pytest.mark.long),
    ],
)
def test_uv_and_pip_make_an_environment_and_later_slices_fetch_it(
    bare: BareStack, code: Path, env: dict[str, str], python: str
) -> None:
    name = "-".join(("env", *env)).replace("python", "p")
    for note in (f" was built with {next(iter(env))} in ", " was fetched from the bucket in "):
        job = bare.job_with(name, f'python3 -c "{TINY}"', env=env, code=str(code))
        assert brief(bare.ended(job)) == [("succeeded", None)], bare.run("why", job)
        assert re.search(rf"tabulate 0\.9\.0 {python}", bare.run("logs", job))
        assert any(note in line for line in bare.notes(job)), bare.notes(job)


@pytest.mark.long
def test_conda_makes_an_environment(bare: BareStack, code: Path) -> None:
    """On hosts with this machine's programs: a TPU VM has no conda."""
    tool = next(filter(shutil.which, ("micromamba", "mamba", "conda")), "")
    if not tool:
        pytest.skip("NOT TESTED: neither micromamba, mamba nor conda is installed")
    bare.run("emulator", "profile", "default")
    try:
        env = {"conda": "environment.yml"}
        job = bare.job_with("env-conda", f'python3 -c "{TINY}"', env=env, code=str(code))
        assert brief(bare.ended(job)) == [("succeeded", None)], bare.run("why", job)
    finally:
        bare.run("emulator", "profile", "bare")


@pytest.mark.long
def test_an_image_runs(bare: BareStack) -> None:
    """On hosts with this machine's programs: a user of a bare one is not in docker's group."""
    command = ["docker", "image", "inspect", "--format", "{{.Id}}", "python:3.11-slim"]
    if not shutil.which("docker") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("NOT TESTED: no daemon of docker that has the image python:3.11-slim")
    bare.run("emulator", "profile", "default")
    try:
        env = {"docker": "python:3.11-slim"}
        job = bare.job_with("env-docker", "python3 -V", env=env)
        assert brief(bare.ended(job)) == [("succeeded", None)], bare.run("why", job)
    finally:
        bare.run("emulator", "profile", "bare")


# What a bare host lacks ----------------------------------------------------------------------------------------------


def test_what_a_host_lacks_ends_the_attempt_as_set_up_on_the_same_slice(bare: BareStack) -> None:
    """And never as bad hardware, on one slice after the other."""
    run = {"workload": "mlp", "env": {"UV_DOWNLOAD_URL": "file:///none"}}
    spec = {"name": "no-uv", "tpu": {"type": "v4-8"}, "run": run, "recovery": {"failures": 1}}
    (bare.folder / "no-uv.yaml").write_text(yaml.safe_dump(spec))
    job = bare.json("create", str(bare.folder / "no-uv.yaml"))["id"]
    done = bare.ended(job)
    assert brief(done) == [("failed", "SETUP"), ("failed", "SETUP")], bare.run("why", job)
    assert len(done["slices"]) == 1, bare.run("show", job)
    lacks = "uv is not on this host and cannot be installed: its archive cannot be fetched"
    assert lacks in done["attempts"][-1]["message"]
