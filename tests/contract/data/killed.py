"""Syncs as processes of their own, which are killed at a byte of their way."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.contract.data.proxy import Proxy
from tests.contract.data.rig import Rig

MIB = 1 << 20
#: The command in a process that receives little before it reads it: else up to 32 MiB of what has arrived are lost with
#: a process that is late.
COMMAND = """
import runpy, socket, sys
connect = socket.socket.connect
def small(self, to):
    self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    return connect(self, to)
socket.socket.connect = small
runpy.run_module("tpujob", run_name="__main__", alter_sys=True)
"""
#: bytes that may be under way in the connections of one process when it is killed
UNDER_WAY = 8 * MIB
#: points that are tried in each direction
KILLS = int(os.environ.get("TPUJOB_KILLS", "1"))


class Killed:
    """A rig whose syncs are processes of their own, behind a proxy."""

    def __init__(self, folder: Path, url: str) -> None:
        self.rig = Rig(url, folder)
        self.state = folder / "state"

    def run(
        self,
        proxy: Proxy,
        *places: object,
        kill_at: int = 0,
        by: int = signal.SIGKILL,
        fsize: int = 0,
    ) -> tuple[int, str]:
        """Return the command's exit code and its stderr; with `kill_at` it is killed at so many forwarded bytes."""
        env = os.environ | {"STORAGE_EMULATOR_HOST": proxy.url, "TPUJOB_STATE": str(self.state)}
        env.pop("TPUJOB_CONTEXT", None)
        command = [sys.executable, "-c", COMMAND, "data", "sync", *map(str, places)]
        if fsize:
            limit = (
                f"import resource as r, os, sys; r.setrlimit(r.RLIMIT_FSIZE, ({fsize}, {fsize}));"
            )
            command = [
                sys.executable,
                "-c",
                f"{limit} os.execv(sys.argv[1], sys.argv[1:])",
                *command,
            ]
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        begun = proxy.up + proxy.down

        sent = threading.Lock()

        def watch() -> None:
            enough = kill_at and proxy.up + proxy.down - begun >= kill_at
            if enough and sent.acquire(blocking=False):
                process.send_signal(by)

        proxy.watch = watch
        _, errors = process.communicate(timeout=300)
        proxy.watch = lambda: None
        proxy.settle()
        return process.returncode, errors

    def often(
        self,
        proxy: Proxy,
        seed: str,
        least: int,
        last: int,
        *places: object,
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """Kill each run after some of its bytes and call `check`; then complete one. Return the number of kills."""
        chance, kills = random.Random(seed), 0
        for at in [chance.randrange(least, last) for _ in range(KILLS)]:
            code, errors = self.run(proxy, *places, kill_at=at)
            assert code in (0, -9), errors
            kills += code != 0
            check()
        assert kills, "some were killed"
        code, errors = self.run(proxy, *places)
        assert code == 0, errors
        return kills
