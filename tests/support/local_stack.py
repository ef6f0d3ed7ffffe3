"""The real local stack for the slow stories: emulator, host farm and backend as processes, driven by the real CLI."""

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tpujob.api import JobsApi
from tpujob.config import settings
from tpujob.errors import BackendGone, Transient
from tpujob.wiring.client import running_client

PATIENCE = 240.0  #: seconds until a condition that must come counts as never


class LocalStack:
    """A local stack with a separate state folder, and commands as a user types them."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.folder = folder
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("TPUJOB_", "XDG_"))},
            "TPUJOB_STATE": str(self.state),
            "TPUJOB_USER": "ada",
            "TPUJOB_REPORT_EVERY": "1",  # silence is counted in reports
            "NO_COLOR": "1",
            "COLUMNS": "80",
        }

    def run(self, *words: str, code: int | None = 0, timeout: float = PATIENCE) -> str:
        """Run a command; return its standard output. It must end with `code` (None: any)."""
        done = self.popen(*words)
        try:
            out, err = done.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            done.kill()
            out, err = done.communicate()
            raise AssertionError(f"tpujob {' '.join(words)} hung\n{out}\n{err}") from None
        transcript = f"tpujob {' '.join(words)} ended with {done.returncode}\n{out}\n{err}"
        assert code is None or done.returncode == code, transcript + self.backend_log()
        return out if done.returncode == 0 else out + err

    def popen(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tpujob", *words]
        return subprocess.Popen(
            command,
            env=self.env,
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def create(self, name: str, command: str, **fields: Any) -> str:
        """Submit a job of two hosts that runs `command`; return its id."""
        spec = {
            "name": name,
            "tpu": {"type": "v4-16"},
            "run": {"command": command},
            "stop_grace": "3s",
            "preflight": False,
            **fields,
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(spec))  # JSON is YAML
        return self.json("create", str(file))["id"]

    def job(self, job_id: str) -> Mapping[str, Any]:
        """Return a view over HTTP, as a command costs a process; by a command if no backend answers."""
        with contextlib.suppress(BackendGone, Transient):
            if api := self._backend():
                return api.get(job_id)
        return self.json("show", job_id)

    def until(
        self,
        job_id: str,
        holds: Callable[[Mapping[str, Any]], bool] | str,
        patience: float = PATIENCE,
    ) -> Mapping[str, Any]:
        """Follow the job; return its view once the condition or the named state has come."""
        condition = (lambda view: view["state"] == holds) if isinstance(holds, str) else holds
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            for view in self._views(job_id):
                if condition(view):
                    return view
                if time.monotonic() > deadline:
                    break
        raise AssertionError(f"never came\n{self.run('show', job_id)}\n{self.backend_log()}")

    def _views(self, job_id: str) -> Iterator[Mapping[str, Any]]:
        """Yield a view now, at each change and each second, until the backend ends."""
        yield self.job(job_id)
        with contextlib.suppress(BackendGone, Transient):
            if api := self._backend():
                for _ in api.follow(job_id, timeout=1.0):
                    yield api.get(job_id)

    def curves(self, job_id: str) -> set[str]:
        """Return the names of the curves on the page of a job."""
        api = self._backend()
        assert api, self.backend_log()
        return {chart["name"] for chart in api.metrics(job_id)["charts"]}

    def losses(self, job_id: str, attempt: int) -> dict[int, float]:
        """Return the points of the loss curve on the page of a job, by step."""
        api = self._backend()
        assert api, self.backend_log()
        charts = api.metrics(job_id, attempt=attempt)["charts"]
        curves = [curve for chart in charts if chart["name"] == "loss" for curve in chart["curves"]]
        return {step: last for curve in curves for step, *_, last in curve["points"]}

    def _backend(self) -> JobsApi | None:
        return running_client(settings.load(env=self.env))

    def ready(self, name: str) -> dict[str, Any]:
        return json.loads((self.state / "run" / f"{name}.json").read_text())

    def backend_log(self) -> str:
        log = self.state / "run" / "backend.log"
        return "\n--- backend.log\n" + (log.read_text()[-4000:] if log.exists() else "(none)")

    def down(self) -> None:
        self.run("down", code=None)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    local = LocalStack(tmp_path_factory.mktemp("stack"))
    local.run("up")
    yield local
    slices = local.json("emulator", "status")["slices"]
    local.down()
    assert slices == [], f"no story may leave a slice behind: {slices}"


class Lab:
    """A user with projects: contexts, a checkout, and the emulators in place of Google."""

    def __init__(self, folder: Path, firestore: str) -> None:
        self.folder = folder
        self.local = LocalStack(folder)
        self.local.run("up")
        self.local.env["TPUJOB_CONTEXT"] = "local"
        self.tpujob = LocalStack(folder)
        self.tpujob.env |= self.local.json("emulator", "env")
        self.tpujob.env |= {"FIRESTORE_EMULATOR_HOST": firestore, "TPUJOB_REPORT_EVERY": "2"}

    def context(self, name: str) -> str:
        """Make and use a new context in a new project; return its bucket."""
        project, bucket = f"test-{uuid.uuid4().hex[:12]}", f"gs://{name}-{uuid.uuid4().hex[:6]}"
        where = ("--project", project, "--zone", "us-central2-b", "--bucket", bucket)
        self.tpujob.run("init", "--name", name, *where, "--store", "firestore")
        self.tpujob.run("bucket", "create")
        return bucket

    def in_the_cloud(self) -> list[Any]:
        """Return all slices and all requests, of all users."""
        return self.local.json("emulator", "status")["slices"]

    def down(self) -> None:
        for context in sorted((self.folder / "state" / "contexts").glob("*.yaml")):
            self.tpujob.env["TPUJOB_CONTEXT"] = context.stem
            self.tpujob.down()
        self.local.down()
