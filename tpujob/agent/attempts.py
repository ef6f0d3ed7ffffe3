"""The attempts that this host knows of, and how the daemons of others are asked to stop.

An attempt's `state.json` is its record; its lock tells whether its daemon lives. Both, `stop.json` and the signal are
understood by agents of other versions: a newer one stops what an older one runs.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import time
from typing import Dict, List, Optional, TypedDict, cast

from tpujob.agent.base import is_locked, read_json, write_json
from tpujob.agent.folders import ATTEMPTS, AttemptFolder
from tpujob.agent.processes import KILL_PATIENCE, send
from tpujob.protocol import AgentCause, Phase, UnreachedDocument, VerdictDocument


class AttemptState(TypedDict):
    """`state.json`. What a report has, too, goes into every report."""

    job: str
    attempt: int
    phase: str  #: a Phase
    exit_code: Optional[int]
    error: str
    cause: Optional[AgentCause]
    late: bool
    unreached: Optional[UnreachedDocument]
    signalled: bool
    ran: Optional[float]
    notice: str
    physical: str
    saved_in: Optional[float]
    verdict: Optional[VerdictDocument]
    versions: Dict[str, str]
    # for the next command only
    pid: int  #: of the daemon
    program: bool  #: it was started
    stopped: bool  #: by `stop`


class OtherAttempt(AttemptState):
    """An attempt of another daemon, and what is known about it."""

    folder: str
    live: bool  #: its daemon runs


def read_state(folder: AttemptFolder) -> Optional[AttemptState]:
    """Return the record; None: there is none."""
    return cast(Optional[AttemptState], read_json(folder.state) or None)


def other_attempts(besides: str = "") -> List[OtherAttempt]:
    """Return every attempt that this host knows, except the one in the folder `besides`."""
    found: List[OtherAttempt] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(ATTEMPTS), "*"))):
        folder = AttemptFolder(path)
        state = read_state(folder)
        if state and path != besides:
            live = is_locked(folder.lock)
            found.append(cast(OtherAttempt, dict(state, folder=path, live=live)))
    return found


def stop_others(grace: float, besides: str = "", discard: bool = False) -> List[OtherAttempt]:
    """Have every other daemon stop its program; one that does not is killed. Returns those that were asked."""
    asked = ask_others(grace, besides, discard)
    until = time.monotonic() + grace + KILL_PATIENCE
    for state in asked:
        folder = AttemptFolder(state["folder"])
        while not has_ended(folder) and time.monotonic() < until:
            time.sleep(0.05)
        if not has_ended(folder):
            send({state["pid"]}, signal.SIGKILL)
    return asked


def ask_others(grace: float, besides: str = "", discard: bool = False) -> List[OtherAttempt]:
    """Ask every other daemon to stop its program, and wait for none. Returns those that were asked; safe to repeat.
    `discard`: kill it without SIGTERM, and keep nothing more of what it writes."""
    asked = [s for s in other_attempts(besides) if s["live"] and s["phase"] != Phase.EXITED]
    for state in asked:
        with contextlib.suppress(OSError):  # on a full disk the signal alone must do
            asks = {"grace": grace, "discard": discard}
            write_json(AttemptFolder(state["folder"]).stop, asks)
        send({state["pid"]}, signal.SIGUSR1)
    return asked


def remove_leftovers(besides: str = "") -> None:
    """Remove the working folder of every other attempt that is over."""
    for state in other_attempts(besides):
        folder = AttemptFolder(state["folder"])
        over = state["phase"] == Phase.EXITED and not state["live"]
        if over and not os.path.islink(folder.work):
            shutil.rmtree(folder.work, ignore_errors=True)


def has_ended(folder: AttemptFolder) -> bool:
    ended = read_json(folder.state).get("phase") == Phase.EXITED
    return ended or not is_locked(folder.lock)


def restartable(state: AttemptState, folder: AttemptFolder) -> bool:
    """Whether the attempt was stopped, or its daemon died, before the program began. If so, no daemon of it is left
    afterwards."""
    ended_itself = state["phase"] == Phase.EXITED and not state["stopped"]
    if state["program"] or ended_itself or not has_ended(folder):
        return False
    send({state["pid"]} if is_locked(folder.lock) else set(), signal.SIGKILL)
    return True
