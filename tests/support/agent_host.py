"""A host for the agent: a home folder, a metadata server, the emulated storage; and the verbs of the stories."""

from __future__ import annotations

import atexit
import functools
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.support.local_server import LocalServer
from tests.support.waiting import LONG
from tests.support.waiting import until as until
from tpujob.adapters.ssh.agent_calls import build_archive
from tpujob.domain.host import reports
from tpujob.emulator.storage import StorageServer
from tpujob.protocol import paths, segment, signing
from tpujob.protocol.report import ReportBody, read_report_body

JOB = "000042"
KEY, CACHE_KEY = "0a" * 32, "0b" * 32  #: keys of the attempt and of its owner
#: fields of a report that may be missing, which means None
MAY_BE_NONE = ("exit_code", "ran", "cause", "unreached", "saved_in", "verdict", "maintenance")
#: Python without its variables and site-packages
AGENT = (sys.executable, "-S", "-E")

#: a folder for PYTHONPATH that makes a Python without libtpu
NO_LIBTPU = str(Path(__file__).parent / "no_libtpu")


@functools.cache
def agent_as_files() -> Path:
    """Return a folder with the unpacked agent, one for all hosts of this process. Python caches the compiled form of
    files, but compiles an archive at each start, which takes longer than most tests of the agent."""
    folder = Path(tempfile.mkdtemp(prefix="tpujob-agent-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(build_archive())) as archive:
        archive.extractall(folder)
    return folder


class MetadataServer(LocalServer):
    """The metadata server of a VM; tests may change `facts` at any time."""

    def __init__(self) -> None:
        facts = self.facts = {"preempted": "FALSE", "maintenance-event": "NONE"}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/computeMetadata/v1/instance/")
                exists = name in facts and self.headers.get("Metadata-Flavor") == "Google"
                self.send_response(200 if exists else 404)
                self.end_headers()
                self.wfile.write(facts.get(name, "").encode())

        super().__init__(Handler)


class Bucket:
    """One bucket of the emulated storage, seen by a client other than the agent."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._server = StorageServer(state)
        self.url = self._server.url
        self._ask("POST", "/storage/v1/b?project=p", b'{"name": "shed"}')

    def away(self) -> None:
        """Let the storage answer no request."""
        self._server.stop()

    def back(self) -> None:
        port = int(self.url.rpartition(":")[2])
        self._server = StorageServer(self._state, port)

    def close(self) -> None:
        self._server.stop()

    def put(self, name: str, data: bytes) -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        self._ask("POST", f"/upload/storage/v1/b/shed/o?{query}", data)

    def bundle(self, data: bytes) -> str:
        name = f"bundles/{hashlib.sha256(data).hexdigest()}.tar.gz"
        self.put(name, data)
        return f"gs://shed/{name}"

    def list(self, prefix: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"prefix": prefix})
        return json.loads(self._ask("GET", f"/storage/v1/b/shed/o?{query}")).get("items", [])

    def read(self, name: str) -> bytes:
        return self._ask(
            "GET", f"/storage/v1/b/shed/o/{urllib.parse.quote(name, safe='')}?alt=media"
        )

    def log(self, attempt: int = 1) -> list[str]:
        """Return the stored lines of host 0 without their times."""
        stored = b"".join(self.read(name) for name, _ in self.segments(attempt))
        lines = stored.decode(errors="replace").splitlines()
        return [line.partition(" ")[2] for line in lines]

    def segments(self, attempt: int = 1) -> list[tuple[str, segment.SegmentFacts | None]]:
        """Return the names of the shipped segments, in order, with the facts about their lines."""
        prefix = f"jobs/{JOB}/attempts/{attempt}/host-0/log-"
        return [(o["name"], segment.read(o.get("metadata", {}))) for o in self.list(prefix)]

    def report(self, attempt: int = 1, host: int = 0) -> dict[str, Any]:
        """Return the newest report of the agent on a host; empty: no report yet."""
        name = self.report_name(attempt, host)
        about = next((o for o in self.list(name) if o["name"] == name), None)
        if about is None:
            return {}
        text, mac = about["metadata"]["report"], about["metadata"]["mac"]
        assert signing.verify(KEY, mac, "report", text), f"{name} is not signed"
        return {**dict.fromkeys(MAY_BE_NONE), **json.loads(text)}

    def body(self, attempt: int = 1, host: int = 0) -> ReportBody:
        body = read_report_body(self.read(self.report_name(attempt, host)), KEY)
        assert body is not None, "it is not signed"
        return body

    def report_name(self, attempt: int = 1, by: int = 0) -> str:
        path = paths.report_path(f"gs://shed/jobs/{JOB}", attempt, by)
        return path.removeprefix("gs://shed/")

    def evidence(self, attempt: int = 1) -> tuple[str, ...]:
        """Return the lines that the agent of host 0 has kept."""
        return tuple(line.text for line in reports.read_evidence(self.body(attempt).evidence))

    def _ask(self, method: str, where: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.url + where, data, method=method)
        with urllib.request.urlopen(request, timeout=LONG) as response:
            return response.read()


class Host:
    """A host whose agent's commands run as in an SSH session."""

    def __init__(self, folder: Path, bucket: Bucket, metadata: MetadataServer) -> None:
        self.home, self.bucket, self.metadata = folder / "home", bucket, metadata
        self.devices, self.tmp = folder / "dev", folder / "tmp"
        for made in (self.home, self.devices, self.tmp):
            made.mkdir(parents=True)
        (self.devices / "accel0").touch()
        self.env = {
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "STORAGE_EMULATOR_HOST": bucket.url,
            "GCE_METADATA_HOST": metadata.address,
            "TPUJOB_DEVICES": f"{self.devices}/accel*",
        }

    def plan(self, command: str | list[str], *, attempt: int = 1, **changes: Any) -> Path:
        argv = ["bash", "-o", "pipefail", "-c", command] if isinstance(command, str) else command
        both = {"job": JOB, "attempt": attempt, "host": 0, "hosts": 1}
        both["workdir"] = f"gs://shed/jobs/{JOB}"
        context = {"cache": "~/.tpujob/cache", "data": "", "coordinator": "", "fault": ""}
        document = {
            **both, "v": 1, "bundles": [], "setup": None, "argv": argv, "env": {}, "context": {**both, **context},
            "grace": 5, "report_every": 1, "log_bytes": 256 * 1024 * 1024, **changes,
        }  # fmt: skip
        path = self.home / f"plan-{attempt}.json"
        path.write_text(json.dumps(document))
        return path

    def call(self, *words: object, input: str = "") -> subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(input.encode())
            stdin.seek(0)
            return subprocess.Popen(
                [*AGENT, str(agent_as_files()), *map(str, words)],
                env=self.env,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )

    def agent(self, *words: object, input: str = "") -> dict[str, Any]:
        """Return the answer to one command."""
        output = self.call(*words, input=input).communicate(timeout=90)[0]
        try:
            return json.loads(output)
        except ValueError:
            raise AssertionError(
                f"agent {words} printed {output.decode(errors='replace')}"
            ) from None

    def start(
        self, command: str | list[str], secrets: dict[str, str] | None = None, **changes: Any
    ) -> dict[str, Any]:
        secrets_json = told_json(**(secrets or {}))
        answer = self.agent(
            "start", self.plan(command, **changes), "--secrets-on-stdin", input=secrets_json
        )
        assert answer["ok"], answer
        return answer

    def phase(self, phase: str, attempt: int = 1, seconds: float = 90) -> dict[str, Any]:
        """Wait until the report has this phase; return the report."""

        def reached() -> dict[str, Any] | None:
            report = self.bucket.report(attempt)
            return report if report.get("phase") == phase else None

        return until(reached, f"{phase}; the report is {self.bucket.report(attempt)}", seconds)

    def ended(self, attempt: int = 1, seconds: float = 90) -> dict[str, Any]:
        return self.phase("exited", attempt, seconds)

    def run(self, command: str | list[str], **changes: Any) -> dict[str, Any]:
        """Run a command from start to the last report."""
        self.start(command, **changes)
        return self.ended(changes.get("attempt", 1))

    def tools(self, scripts: dict[str, str]) -> Path:
        """Write programs into a folder that precedes this machine's programs on PATH; return the folder."""
        folder = self.home.parent / "tools"
        folder.mkdir(exist_ok=True)
        for name, text in scripts.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.env["PATH"] = f"{folder}:{self.env['PATH']}"
        return folder

    def out(self) -> Path:
        return self.home / ".tpujob" / "attempts" / f"{JOB}-1" / "out"

    def processes(self) -> dict[int, str]:
        """Return the command lines of this host's processes, by pid: those with the host's home in the environment."""
        commands: dict[int, str] = {}
        mark = f"HOME={self.home}\0".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes():
                    commands[int(entry.name)] = (entry / "cmdline").read_bytes().decode()
            except OSError:
                continue
        return commands

    def close(self) -> None:
        """Kill all processes of the host, and wait for their end."""

        def all_gone() -> bool:
            for pid in self.processes():
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    continue
            return not self.processes()

        until(all_gone, "the end of the host's processes")


def told_json(**secrets: str) -> str:
    """Return the keys and secrets as the agent reads them from standard input."""
    return json.dumps({"key": KEY, "cache_key": CACHE_KEY, "secrets": secrets})


#: a program that records its start and the signal that stops it in files that outlive it
PATIENT = """
import os, pathlib, signal, sys, time
home = pathlib.Path(os.environ["HOME"])
def told(*_):
    with open(home / "told", "a") as f: f.write("x")
    time.sleep(0.3)
    sys.exit(75)
signal.signal(signal.SIGTERM, told)
with open(home / "starts", "a") as f: f.write(os.environ["TPUJOB_ATTEMPT"] + "\\n")
print("ready", flush=True)
while True: time.sleep(0.1)
"""


def starts(host: Host) -> list[str]:
    path = host.home / "starts"
    return path.read_text().split() if path.exists() else []


def patient(host: Host, *, program: str = PATIENT, **changes: Any) -> dict[str, Any]:
    answer = host.start(["python3", "-c", program], **changes)
    attempt = changes.get("attempt", 1)
    until(lambda: str(attempt) in starts(host), "the start of the program")
    return answer
