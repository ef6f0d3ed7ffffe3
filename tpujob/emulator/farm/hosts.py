"""One emulated host: its folder, its environment, its metadata server and its SSH server. On, then off for good."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tpujob.emulator.farm import processes
from tpujob.emulator.farm.http import HttpServer
from tpujob.emulator.farm.metadata import SSH_KEYS, Metadata
from tpujob.emulator.farm.session import Login
from tpujob.emulator.farm.sshd import SshServer

USER = "tpujob"


@dataclass(frozen=True, slots=True)
class HostSpec:
    """What the emulated cloud asks for, of one host."""

    index: int
    physical: str = ""  #: name of the machine below
    chips: int = 1
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class Host:
    """`marker` is what every process of the host carries; it ends with `/`, so that no marker begins another."""

    def __init__(
        self,
        spec: HostSpec,
        *,
        address: str,
        folder: Path,
        marker: str,
        facts: Mapping[str, str],
        census: processes.Census,
    ) -> None:
        self.spec = spec
        self.address = address
        self.marker = marker
        self.metadata = Metadata(facts)
        self._folder = folder
        self._census = census
        self._http = HttpServer(self.metadata.answer)
        self._ssh: SshServer | None = None
        self._slow: asyncio.Task[None] | None = None

    async def power_on(self, ssh_port: int) -> None:
        """Make the folders and the device files, and listen. Raises OSError when the address is taken."""
        home, tmp, devices = (self._folder / name for name in ("home", "tmp", "dev"))
        for folder in (home, tmp, devices):
            folder.mkdir(parents=True, mode=0o700)
        for chip in range(self.spec.chips):
            (devices / f"accel{chip}").touch(mode=0o600)
        metadata_port = await self._http.start(self.address)
        env = host_env(
            self.spec,
            home=home,
            tmp=tmp,
            devices=devices,
            metadata=f"{self.address}:{metadata_port}",
            marker=self.marker,
        )
        login = Login(USER, lambda: self.metadata.get(SSH_KEYS), home, env)
        self._ssh = SshServer(login)
        await self._ssh.start(self.address, ssh_port)

    async def disconnect(self) -> None:
        """Cut every connection and listener, at once. Its processes are the caller's to kill; the folder stays."""
        self.slow(1)
        await self._http.close()
        if self._ssh is not None:
            await self._ssh.close()

    async def ended(self) -> None:
        """Return when all that sessions started has ended and is waited for."""
        if self._ssh is not None:
            await self._ssh.ended()

    def slow(self, factor: float) -> None:
        """From now on its processes get 1/`factor` of their time; 1 ends it."""
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        if factor > 1:
            work = self._census.slow_down(self.marker, factor)
            self._slow = asyncio.create_task(work)


def host_env(
    spec: HostSpec, *, home: Path, tmp: Path, devices: Path, metadata: str, marker: str
) -> dict[str, str]:
    """The whole environment of a session: nothing of the farm's own gets through, its language aside."""
    python = Path(sys.executable).parent  # holds a `python3` with everything that this one has
    return {
        "HOME": str(home),
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/bash",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PATH": f"{python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": str(tmp),
        "GCE_METADATA_HOST": metadata,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(spec.chips),
        "TPUJOB_DEVICES": f"{devices}/accel*",
        **spec.env,
        processes.MARKER: marker,
    }
