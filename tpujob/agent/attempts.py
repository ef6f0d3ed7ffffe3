"""Lists the attempts on this host, and asks the daemons of other attempts to stop.

An attempt's `state.json` is its record; its daemon holds its lock. Record, lock, `stop.json` and the signal are the
same in all versions of the agent: a newer agent stops the daemons of older agents.
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
    """The content of `state.json`. Every report repeats the fields that reports have, too."""

    job: str
    attempt: int
    phase: str  #: a Phase
    exit_code: Optional[int]
    error: str
    cause: Optional[AgentCause]
    late: bool
    unreached: Optional[UnreachedDocument]
    signalled: bool
    kernel_kills: int
    ran: Optional[float]
    notice: str
    physical: str
    saved_in: Optional[float]
    verdict: Optional[VerdictDocument]
    versions: Dict[str, str]
    last_error: str
    # for the next command only
    pid: int  #: the daemon's
    program: bool  #: the program was started
    launcher: int  #: the pid of the program's launcher; 0: unknown
    began: float  #: monotonic time of the program's start
    stopped: bool  #: `stop` ended the attempt


class OtherAttempt(AttemptState):
    """The record of an attempt of another daemon."""

    folder: str
    live: bool  #: the daemon runs


def read_state(folder: AttemptFolder) -> Optional[AttemptState]:
    """Return the attempt's record, or None if it has none."""
    return cast(Optional[AttemptState], read_json(folder.state) or None)


def other_attempts(besides: str = "") -> List[OtherAttempt]:
    """Return the attempts on this host, except the attempt in the folder `besides`."""
    attempts: List[OtherAttempt] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(ATTEMPTS), "*"))):
        folder = AttemptFolder(path)
        state = read_state(folder)
        if state and path != besides:
            live = is_locked(folder.lock)
            attempts.append(cast(OtherAttempt, dict(state, folder=path, live=live)))
    return attempts


def stop_others(grace: float, besides: str = "", discard: bool = False) -> List[OtherAttempt]:
    """Stop the program of every other live attempt, killing daemons that are too slow. Returns these attempts."""
    attempts = ask_others(grace, besides, discard)
    until = time.monotonic() + grace + KILL_PATIENCE
    for state in attempts:
        folder = AttemptFolder(state["folder"])
        while not has_ended(folder) and time.monotonic() < until:
            time.sleep(0.05)
        if not has_ended(folder):
            send({state["pid"]}, signal.SIGKILL)
    return attempts


def ask_others(grace: float, besides: str = "", discard: bool = False) -> List[OtherAttempt]:
    """Ask every other daemon to stop its program, without waiting. Returns the attempts of these daemons. Safe to
    repeat. `discard`: kill the program without SIGTERM, and discard whatever it writes afterwards."""
    attempts = [s for s in other_attempts(besides) if s["live"] and s["phase"] != Phase.EXITED]
    for state in attempts:
        with contextlib.suppress(OSError):  # on a full disk the signal must suffice
            request = {"grace": grace, "discard": discard}
            write_json(AttemptFolder(state["folder"]).stop, request)
        send({state["pid"]}, signal.SIGUSR1)
    return attempts


def remove_leftovers(besides: str = "") -> None:
    """Delete the working folder of every other attempt that has ended."""
    for state in other_attempts(besides):
        folder = AttemptFolder(state["folder"])
        over = state["phase"] == Phase.EXITED and not state["live"]
        if over and not os.path.islink(folder.work):
            shutil.rmtree(folder.work, ignore_errors=True)


def has_ended(folder: AttemptFolder) -> bool:
    ended = read_json(folder.state).get("phase") == Phase.EXITED
    return ended or not is_locked(folder.lock)


def was_killed(state: AttemptState, folder: AttemptFolder) -> bool:
    """Return whether the daemon was killed while the program ran, or might have."""
    return state["program"] and state["phase"] != Phase.EXITED and not is_locked(folder.lock)


def can_restart(state: AttemptState, folder: AttemptFolder) -> bool:
    """Return whether `stop` or its daemon's death ended the attempt before its program started. Kills a daemon left."""
    ended_itself = state["phase"] == Phase.EXITED and not state["stopped"]
    if state["program"] or ended_itself or not has_ended(folder):
        return False
    if is_locked(folder.lock):
        send({state["pid"]}, signal.SIGKILL)
    return True
