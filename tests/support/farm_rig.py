"""A real farm in another process, and small tools with which tests look at it from outside."""

import contextlib
import io
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import Any

import paramiko

from tests.support.records import a_slice
from tests.support.waiting import LONG
from tests.support.waiting import until as until
from tpujob.adapters.ssh import FileKeys
from tpujob.adapters.ssh.keys import public_line
from tpujob.domain.model import Endpoint, Slice
from tpujob.emulator.client import EmulatorClient, call_control
from tpujob.emulator.farm.processes import MARKER


class FarmProcess:
    """A farm process, from the constructor to `stop` or `kill`."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        ready = folder / "farm.ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tpujob.emulator.farm"]
        arguments = ["--ready", str(ready), "--state", str(self.state)]
        self.process = subprocess.Popen([*command, *arguments])
        until(lambda: ready.exists() or self.process.poll() is not None, "the farm listens")
        assert ready.exists(), f"the farm ended with {self.process.returncode}"
        self.ready = json.loads(ready.read_text())
        self.ssh_port = self.ready["ssh_port"]
        # the adapter's own keys, so that what is made here can be used through it
        self._keys = FileKeys(folder / "rig-keys")
        self._key = paramiko.Ed25519Key.from_private_key(io.StringIO(self._keys.private_key("rig")))
        self.public_key = public_line(self._keys.private_key("rig"))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        control = Path(self.ready["control"])
        status, answer = call_control(control, method, path, body, timeout=LONG)
        assert status == 200, f"{method} {path}: {status} {answer!r}"
        return json.loads(answer)

    def slice(self, name: str, hosts: int = 1, *, key: str = "", **fields: Any) -> list[str]:
        """Make a slice that lets `key` (or the rig) in; returns the addresses."""
        body = {
            "name": name,
            "zone": "us-central2-b",
            "type": "v4-16",
            "metadata": {"ssh-keys": f"tpujob:{key or self.public_key}"},
            "hosts": [{"index": i, "physical": f"h{i}", "chips": 4} for i in range(hosts)],
            **fields,
        }
        return [address for address, _ in self.call("PUT", f"/slices/{name}", body)["hosts"]]

    def has(self, name: str) -> bool:
        """Return whether the farm has a slice of that name."""
        return name in self.call("GET", "/slices")

    def processes(self, name: str) -> list[int]:
        """Return the pids of every host of a slice, found by the marker in their environment."""
        mark, pids = re.compile(rf"{MARKER}=\w+/{name}/".encode()), list[int]()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # another user's, or gone
                if mark.search(environ.read_bytes()):
                    pids.append(int(environ.parent.name))
        return pids

    @contextlib.contextmanager
    def ssh(self, address: str, user: str = "tpujob") -> Iterator[paramiko.SSHClient]:
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        try:
            client.connect(
                address,
                self.ssh_port,
                user,
                pkey=self._key,
                allow_agent=False,
                look_for_keys=False,
                timeout=LONG,
                banner_timeout=LONG,
                auth_timeout=LONG,
            )
            yield client
        finally:
            client.close()

    def run(self, address: str, command: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run a command; return exit code (-1: by a signal), stdout, stderr."""
        with self.ssh(address) as client:
            feed, out, err = client.exec_command(command, timeout=LONG)
            feed.write(stdin)
            feed.channel.shutdown_write()
            stdout, stderr = out.read(), err.read()  # first: the exit code comes after all output
            return out.channel.recv_exit_status(), stdout, stderr

    def start_detached(self, address: str, script: Path, prefix: str = "") -> None:
        """Run a script as a daemon does: in its own session, without a parent, a terminal or streams."""
        inner = f"{prefix}sh {script}; true"
        self.run(address, f"setsid nohup sh -c '{inner}' > /dev/null 2>&1 < /dev/null &")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=LONG)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=LONG)


class EmulatorProcess:
    """The emulator's process, beside the farm of the same folder; started by the constructor."""

    def __init__(self, folder: Path) -> None:
        ready = folder / "emulator.ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tpujob.emulator", "--ready", ready]
        arguments = ["--state", folder / "emulator", "--farm-ready", folder / "farm.ready"]
        self.process = subprocess.Popen([*command, *arguments])
        until(lambda: ready.exists() or self.process.poll() is not None, "it is up", 120)
        assert ready.exists(), f"the emulator ended with {self.process.returncode}"
        self.ready: dict[str, Any] = json.loads(ready.read_text())
        self.client = EmulatorClient.from_ready(ready)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=LONG)


def refuses(address: str, port: int) -> bool:
    """Return whether no process listens at that address."""
    try:
        socket.create_connection((address, port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def process_state(pid: int | str) -> str:
    """Return the state of a process: S sleeping, T stopped, and others."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return process_state(pid) not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def slice_at(name: str, *addresses: str) -> Slice:
    """Return a slice whose host i is at the i-th address."""
    return a_slice(name=name, endpoints=tuple(starmap(Endpoint, enumerate(addresses))))
