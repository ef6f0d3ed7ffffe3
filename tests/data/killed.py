"""Syncs as processes of their own, which are killed at a byte of their way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.data.proxy import Proxy
from tests.data.rig import Rig

MIB = 1 << 20
#: bytes that may be under way in the connections of one process when it is killed
UNDER_WAY = 8 * MIB


class Killed:
    """A rig whose syncs are processes of their own, behind a proxy."""

    def __init__(self, folder: Path, url: str) -> None:
        self.rig = Rig(url, folder)
        self.state = folder / "state"
        self.uploads = folder / "storage" / "uploads"

    def run(
        self,
        proxy: Proxy,
        *places: object,
        kill_at: int = 0,
        by: int = signal.SIGKILL,
        fsize: int = 0,
    ) -> tuple[int, str]:
        """The command's exit code and what it says; with `kill_at` it is killed at so many forwarded bytes."""
        env = os.environ | {"STORAGE_EMULATOR_HOST": proxy.url, "TPUJOB_STATE": str(self.state)}
        env.pop("TPUJOB_CONTEXT", None)
        command = [sys.executable, "-m", "tpujob", "data", "sync", *map(str, places)]
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
        _, said = process.communicate(timeout=300)
        proxy.watch = lambda: None
        return process.returncode, said


def points(seed: str, least: int, most: int, count: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(least, most) for _ in range(count)]
