"""One emulated host: its folder, environment, metadata server and SSH server."""

import asyncio
import itertools
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tpujob.emulator.farm import HostSpec, processes
from tpujob.emulator.farm.metadata import GUEST_ATTRIBUTES, NAME, OS_LOGIN, SSH_KEYS, MetadataServer
from tpujob.emulator.farm.session import HostUser
from tpujob.emulator.farm.sshd import SshServer
from tpujob.emulator.http_server import HttpServer
from tpujob.errors import NotFound

USER = "tpujob"


def home_path(folder: Path, home: Path) -> Path:
    """Return the first numbered link in `folder` that leads nowhere; let it lead to `home`. On TPU VMs a home has the
    same path everywhere, and environments in the bucket contain this path. Here hosts use a path one after another."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = (folder / str(number) for number in itertools.count())
    path = next(path for path in paths if not path.exists())
    path.unlink(missing_ok=True)
    path.symlink_to(home)
    return path


class Host:
    """An emulated host. Its processes carry `marker`, which ends with `/`, so no marker is a prefix of another."""

    def __init__(
        self,
        spec: HostSpec,
        *,
        address: str,
        folder: Path,
        marker: str,
        facts: Mapping[str, str],
        cluster: Mapping[str, str],
        census: processes.Census,
        programs: str,
        homes: Path,
    ) -> None:
        self.spec = spec
        self.address = address
        self.marker = marker
        self.metadata = MetadataServer(facts)
        self.on = False
        self._folder = folder
        self._census = census
        self._programs, self._homes = programs, homes
        self._cluster = cluster
        self._http = HttpServer(self.metadata.answer)
        self._metadata_port = 0  #: stays the same after a power cycle: programs know it
        self._env: dict[str, str] = {}
        self._ssh: SshServer | None = None
        self._slow: asyncio.Task[None] | None = None
        self._stopped: list[processes.HostProcess] = []  #: processes that `hang` stopped

    async def power_on(self, ssh_port: int) -> None:
        """Listen; the first call makes the disk, later ones keep it. Raise OSError when the address is taken."""
        self._metadata_port = await self._http.start(self.address, self._metadata_port)
        if self._ssh is None:
            self._ssh = SshServer(self._install())
        await self._ssh.start(self.address, ssh_port)
        self.on = True

    async def disconnect(self) -> None:
        """Close every connection and listener at once. The caller kills the processes; the folder stays."""
        self.on = False
        self.slow(1)
        await self._http.close()
        if self._ssh is not None:
            await self._ssh.close()

    async def ended(self) -> None:
        """Wait until every process of the host's sessions has ended and is reaped."""
        if self._ssh is not None:
            await self._ssh.ended()

    def guest_attributes(self) -> dict[str, str]:
        """Return what the guest agent publishes, `namespace/key` to value; empty unless the metadata enables it."""
        if self._ssh is None or not _is_true(self.metadata.get(GUEST_ATTRIBUTES)):
            return {}
        kind, _, key = self._ssh.public_key.partition(" ")
        return {f"hostkeys/{kind}": key, "hostkeys/hostname": self.metadata.get(NAME)}

    def slow(self, factor: float) -> None:
        """Give the host's processes 1/`factor` of their time from now on; 1 ends it."""
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        if factor > 1:
            self._stopped = []  # `slow_down` continues them again and again
            work = self._census.slow_down(self.marker, factor)
            self._slow = asyncio.create_task(work)

    def set_env(self, name: str, value: str) -> None:
        """Set a variable for processes that start from now on; an empty value removes the variable."""
        self._env.pop(name, None)
        if value:
            self._env[name] = value

    def hang(self, *, off: bool) -> bool:
        """Stop the program's processes, but not the agent; `off` continues them. Return whether a program runs."""
        self.slow(1)
        program = self._census.program(self.marker)
        processes.send(program, signal.SIGCONT if off else signal.SIGSTOP)
        self._stopped = [] if off else program
        return bool(program)

    @property
    def hung(self) -> bool:
        """Whether a program that `hang` stopped still exists and is stopped."""
        return any(processes.is_stopped(process) for process in self._stopped)

    def run_out_of_memory(self) -> None:
        """Kill the program's biggest process and count it, as the kernel does. Raise NotFound if no program runs."""
        victim = max(self._census.program(self.marker), key=processes.memory, default=None)
        if victim is None:
            raise NotFound(f"no program runs on host {self.spec.index}")
        kills = int(self._vmstat.read_text().split()[1])
        # before the kill: the agent reads it as soon as its program has died
        self._vmstat.write_text(f"oom_kill {kills + 1}\n")
        processes.send([victim], signal.SIGKILL)

    @property
    def routes(self) -> Path:
        """The file of unreachable addresses, which `farm.write_routes` writes."""
        return self._folder / "routes"

    @property
    def _vmstat(self) -> Path:
        return self._folder / "vmstat"

    def _install(self) -> HostUser:
        """Make a new disk: folders, device files, and the environment of sessions."""
        home, tmp, devices = (self._folder / name for name in ("home", "tmp", "dev"))
        for folder in (home, tmp, devices):
            folder.mkdir(parents=True, mode=0o700)
        for chip in range(self.spec.chips):
            (devices / f"accel{chip}").touch(mode=0o600)
        home = home_path(self._homes, home)
        self._vmstat.write_text("oom_kill 0\n")
        metadata = f"{self.address}:{self._metadata_port}"
        # The whole environment of a session; only the language comes from the farm's own environment.
        self._env = {
            "HOME": str(home),
            "USER": USER,
            "LOGNAME": USER,
            "SHELL": "/bin/bash",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "PATH": self._programs,
            "TMPDIR": str(tmp),
            "GCE_METADATA_HOST": metadata,  # Google's libraries read this one,
            "GCE_METADATA_IP": metadata,  # and JAX this one
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(self.spec.chips),
            "PJRT_DEVICE": "CPU",  # torch_xla's, as the two before are JAX's
            "CPU_NUM_DEVICES": str(self.spec.chips),
            "TPUJOB_DEVICES": f"{devices}/accel*",
            "TPUJOB_MEMORY": str(tmp / "memory"),  # /dev/shm belongs to the whole machine
            "TPUJOB_VMSTAT": str(self._vmstat),  # the kernel's file counts the whole machine
            "TPUJOB_PACKAGE_LOCKS": str(self._folder / "dpkg.lock"),  # dpkg's is shared, too
            "TPUJOB_ROUTES": str(self.routes),
            **self._cluster,
            **self.spec.env,
            processes.MARKER: self.marker,
        }
        return HostUser(USER, self._keys, home, self._env)

    def _keys(self) -> str:
        """Return the `ssh-keys` of the metadata; empty with OS Login, which ignores them."""
        return "" if _is_true(self.metadata.get(OS_LOGIN)) else self.metadata.get(SSH_KEYS)


def _is_true(text: str) -> bool:
    return text.upper() == "TRUE"
