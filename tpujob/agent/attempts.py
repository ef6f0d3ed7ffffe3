"""The attempts that this host knows of, and how the daemons of others are asked to stop."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import time
from typing import List

from tpujob.agent.base import ATTEMPTS, Record, is_locked, read_json, write_json
from tpujob.agent.processes import KILL_PATIENCE, send


def other_states(besides: str = "") -> List[Record]:
    """The record of every attempt that this host knows of, with `folder`, `phase` and whether its daemon is `live`."""
    found: List[Record] = []
    for folder in sorted(glob.glob(os.path.join(glob.escape(ATTEMPTS), "*"))):
        state = read_json(os.path.join(folder, "state.json"))
        if state and folder != besides:
            live = is_locked(os.path.join(folder, "lock"))
            found.append(dict(state, folder=folder, live=live))
    return found


def stop_others(grace: float, besides: str = "") -> List[Record]:
    """Ask every other daemon to stop its program, and see to it. Returns the records of those that were asked."""
    asked = ask_others(grace, besides)
    until = time.monotonic() + grace + KILL_PATIENCE
    for state in asked:
        while not over(state["folder"]) and time.monotonic() < until:
            time.sleep(0.05)
        if not over(state["folder"]):
            send({state["pid"]}, signal.SIGKILL)
    return asked


def ask_others(grace: float, besides: str = "") -> List[Record]:
    """Ask every other daemon to stop its program, and wait for none. Returns their records; safe to repeat."""
    asked = [s for s in other_states(besides) if s["live"] and s["phase"] != "exited"]
    for state in asked:
        with contextlib.suppress(OSError):  # a full disk: the signal alone says it
            write_json(os.path.join(state["folder"], "stop.json"), {"grace": grace})
        send({state["pid"]}, signal.SIGUSR1)
    return asked


def over(folder: str) -> bool:
    ended = read_json(os.path.join(folder, "state.json")).get("phase") == "exited"
    return ended or not is_locked(os.path.join(folder, "lock"))
