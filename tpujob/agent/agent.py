"""The commands of the agent: brings a host to its plan, and stops what runs there.

`start PLAN`, `stop --grace S [--ask]` and `status` print one line of JSON and end; the work is done by a detached
daemon, one for each attempt. Everything lies below `~/.tpujob`; an attempt's `state.json` is its record, and the lock
beside it tells whether its daemon lives.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import traceback

from tpujob.agent.attempts import ask_others, other_states, over, stop_others
from tpujob.agent.base import (
    ATTEMPTS,
    Failure,
    Record,
    command_lock,
    is_locked,
    read_json,
    take_lock,
)
from tpujob.agent.daemon import Daemon
from tpujob.agent.processes import end_all, family, free_devices, send
from tpujob.agent.setup.containers import remove_all


def start(path: str) -> Record:
    """Make this host look like the plan's attempt. Answers once its daemon is there; safe to repeat: an attempt whose
    program was once started is never started again."""
    plan = read_plan(path)
    job, attempt = plan["job"], plan["attempt"]
    folder = os.path.join(ATTEMPTS, "%s-%d" % (job, attempt))
    with command_lock():
        newest = max((s["attempt"] for s in other_states() if s["job"] == job), default=0)
        if newest > attempt:
            raise Failure("attempt %d is stale: attempt %d was started here" % (attempt, newest))
        state = read_json(os.path.join(folder, "state.json"))
        if state and not _never_began(state, folder):
            return {"ok": True, "state": "already", "attempt": attempt, "pid": state["pid"]}
        pid = spawn(plan, folder)
    return {"ok": True, "state": "started", "attempt": attempt, "pid": pid}


def _never_began(state: Record, folder: str) -> bool:
    """Whether the attempt's start may be repeated: it was undone, or its daemon died, before the program began.
    Afterwards no daemon of it is left."""
    if state["program"] or (state["phase"] == "exited" and not state["stopped"]):
        return False
    if not over(folder):
        return False
    send({state["pid"]} if is_locked(os.path.join(folder, "lock")) else set(), signal.SIGKILL)
    return True


def read_plan(path: str) -> Record:
    """The plan in a file, checked as far as a wrong one could do harm. Raises Failure."""
    plan = read_json(path)
    kinds = {
        "job": str, "attempt": int, "host": int, "workdir": str, "bundles": list, "argv": list,
        "env": dict, "context": dict, "grace": (int, float), "report_every": (int, float),
        "log_bytes": int,
    }  # fmt: skip
    wrong = [key for key, kind in kinds.items() if not isinstance(plan.get(key), kind)]
    if plan.get("v") != 1 or wrong:
        raise Failure("%s is no plan that this agent understands: %s" % (path, ", ".join(wrong)))
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", plan["job"]) or not plan["argv"]:
        raise Failure("%s names no job or no program" % path)
    if not plan["workdir"].startswith("gs://"):
        raise Failure("%s has no workdir in a bucket" % path)
    return plan


def spawn(plan: Record, folder: str) -> int:
    """Start the attempt's daemon; returns its pid once it has its lock and its record."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        code = 1
        try:
            os.setsid()
            if os.fork() == 0:
                be_daemon(plan, folder, writer)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    os.wait()
    answer = b""
    while select.select([reader], [], [], 30)[0]:
        data = os.read(reader, 4096)
        answer += data
        if not data or answer.endswith(b"\n"):
            break
    os.close(reader)
    if not answer.strip().isdigit():
        said = answer.decode("utf-8", "replace").strip() or "it did not come up"
        raise Failure("the agent's daemon: %s" % said)
    return int(answer)


def be_daemon(plan: Record, folder: str, answer: int) -> None:
    """What the detached process does, for all its life."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "stop.json"))
        _detach(os.path.join(folder, "agent.log"), answer)
        lock = take_lock(os.path.join(folder, "lock"), 10)
        if lock is None:
            raise OSError("%s is in use" % folder)
        daemon = Daemon(plan, folder)
        daemon.save()
        os.write(answer, b"%d\n" % os.getpid())
    except OSError as error:
        os.write(answer, ("%s\n" % error).encode())
        return
    os.close(answer)
    daemon.run()


def _detach(log: str, keep: int) -> None:
    """Nothing of the session that started it is left open."""
    os.chdir("/")
    null, file = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    )
    for descriptor, number in ((null, 0), (file, 1), (file, 2)):
        os.dup2(descriptor, number)
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def stop(grace: float) -> Record:
    """Nothing of tpujob runs on this host afterwards, and its devices are free. Safe to repeat."""
    with command_lock():  # no start is under way
        pass
    asked = stop_others(grace)
    if end_all(lambda: family(ATTEMPTS), 0 if asked else grace):
        raise Failure("processes of an attempt do not end", "TPU_BUSY")
    remove_all()
    free_devices(grace)
    ended = [read_json(os.path.join(s["folder"], "state.json")) for s in asked]
    kept = ("job", "attempt", "exit_code")
    return {"ok": True, "state": "stopped", "stopped": [{k: s.get(k) for k in kept} for s in ended]}


def ask_to_stop(grace: float) -> Record:
    """Every program here has been told to end within `grace` seconds; `stop` then sees to it. For slices of so many
    hosts that they are stopped in turns."""
    with command_lock():
        pass
    ask_others(grace)
    return {"ok": True, "state": "asked"}


def status() -> Record:
    return {"ok": True, "attempts": other_states()}


def _stopped(given: argparse.Namespace) -> Record:
    return ask_to_stop(given.grace) if given.ask else stop(given.grace)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs one program as its plan says.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start").add_argument("plan")
    stopping = commands.add_parser("stop")
    stopping.add_argument("--grace", type=float, default=30.0)
    stopping.add_argument("--ask", action="store_true")
    commands.add_parser("status")
    given = parser.parse_args()
    try:
        if given.command == "start":
            answer = start(given.plan)
        else:
            answer = _stopped(given) if given.command == "stop" else status()
    except Failure as failure:
        answer = {"ok": False, "error": str(failure), "cause": failure.cause}
    except OSError as error:
        answer = {"ok": False, "error": "the host's disk: %s" % error, "cause": "SETUP"}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1
