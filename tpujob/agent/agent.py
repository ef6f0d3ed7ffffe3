"""The commands of the agent: `start PLAN [--secrets-on-stdin]`, `stop --grace S [--discard] [--ask]`,
`wipe --epoch N [--key K]` and `status` print one line of JSON and end; `live JOB ATTEMPT` prints lines until its reader
hangs up. With `--secrets-on-stdin`,
`start` reads keys and secrets from standard input: they stay in memory, and no file of this host gets them.

`start` detaches a daemon, which does the work of the attempt. Python compiles the archive at each command, which takes
most of a command's time: so modules that only one command needs are imported inside the functions.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import Any, Generator, cast

from tpujob.agent.attempts import (
    ask_others,
    can_restart,
    other_attempts,
    read_state,
    stop_others,
    was_killed,
)
from tpujob.agent.base import (
    Failure,
    LaunchSecrets,
    Record,
    parse_json,
    read_json,
    take_lock,
    write_json,
)
from tpujob.agent.folders import (
    ATTEMPTS,
    COMMAND_LOCK,
    CONTAINERS,
    EPOCH,
    AttemptFolder,
    folder_of_attempt,
)
from tpujob.agent.processes import attempt_processes, end_all, free_devices
from tpujob.protocol import check_plan


def start(path: str, launch: LaunchSecrets) -> Record:
    """Start the daemon of the plan's attempt on this host. Safe to repeat: a program never starts twice. If its daemon
    was killed, another one takes over the program."""
    from tpujob.agent.daemon import spawn

    try:
        plan = check_plan(read_json(path))
    except ValueError as error:
        raise Failure("%s: %s" % (path, error)) from error
    job, attempt = plan["job"], plan["attempt"]
    folder = folder_of_attempt(job, attempt)
    with _command_lock():
        if not os.listdir(ATTEMPTS) and not os.path.exists(EPOCH):
            from tpujob.agent.setup.wipe import record_first_boot

            record_first_boot()
        newest = max((s["attempt"] for s in other_attempts() if s["job"] == job), default=0)
        if newest > attempt:
            raise Failure("attempt %d is stale: attempt %d was started here" % (attempt, newest))
        epoch, latest = plan.get("epoch", 0), read_json(EPOCH)
        if latest.get("epoch", 0) > epoch:
            raise Failure("job %s does not have this slice any more" % job)
        if epoch > latest.get("epoch", 0) or "wiped" in latest:
            write_json(EPOCH, {"epoch": epoch})
        state = read_state(folder)
        earlier = state if state and was_killed(state, folder) else None
        if state and not earlier and not can_restart(state, folder):
            return {"ok": True, "state": "already", "attempt": attempt, "pid": state["pid"]}
        pid = spawn(plan, folder, launch, earlier)
    word = "already" if earlier else "started"
    return {"ok": True, "state": word, "attempt": attempt, "pid": pid}


def stop(grace: float, discard: bool) -> Record:
    """Stop all attempts on this host, and free its devices. Safe to repeat. `discard`: kill the program without SIGTERM
    and discard whatever it writes afterwards."""
    with _command_lock():
        pass  # no start is under way
    attempts = stop_others(grace, discard=discard)
    if end_all(lambda: attempt_processes(ATTEMPTS), 0 if attempts else grace):
        raise Failure("processes of an attempt do not end", "TPU_BUSY")
    if os.path.isdir(CONTAINERS):
        from tpujob.agent.setup import remove_containers

        remove_containers()
    free_devices(grace)
    states = [read_json(AttemptFolder(s["folder"]).state) for s in attempts]
    stopped = [{k: s.get(k) for k in ("job", "attempt", "exit_code")} for s in states]
    return {"ok": True, "state": "stopped", "stopped": stopped}


def ask_to_stop(grace: float, discard: bool) -> Record:
    """Ask every program on this host to end within `grace` seconds, without waiting as `stop` does. The backend uses it
    for slices of so many hosts that it stops them in turns."""
    with _command_lock():
        pass  # no start is under way
    ask_others(grace, discard=discard)
    return {"ok": True, "state": "asked"}


@contextlib.contextmanager
def _command_lock() -> Generator[None, None, None]:
    """Hold the lock that lets one command at a time act on this host."""
    os.makedirs(ATTEMPTS, mode=0o700, exist_ok=True)
    descriptor = take_lock(COMMAND_LOCK, 60)
    if descriptor is None:
        raise Failure("another start or stop has been running for a minute")
    try:
        yield
    finally:
        os.close(descriptor)


def _read_secrets() -> LaunchSecrets:
    """Return the keys and secrets on standard input. Raises Failure if any of them is missing."""
    record = parse_json(sys.stdin.buffer.read())
    secrets: Any = record.get("secrets")
    values = [record.get("key"), record.get("cache_key")]
    values += list(cast(Record, secrets).values()) if isinstance(secrets, dict) else [None]
    if not all(isinstance(value, str) for value in values):
        raise Failure("the keys and secrets did not arrive")
    return LaunchSecrets(record["key"], record["cache_key"], secrets)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs one program as its plan says.")
    commands = parser.add_subparsers(dest="command", required=True)
    start_parser = commands.add_parser("start")
    start_parser.add_argument("plan")
    start_parser.add_argument("--secrets-on-stdin", dest="with_secrets", action="store_true")
    stop_parser = commands.add_parser("stop")
    stop_parser.add_argument("--grace", type=float, default=30.0)
    stop_parser.add_argument("--discard", action="store_true")
    stop_parser.add_argument("--ask", action="store_true")
    wipe_parser = commands.add_parser("wipe")
    wipe_parser.add_argument("--epoch", type=int, required=True)
    wipe_parser.add_argument("--key", default="")
    commands.add_parser("status")
    live_parser = commands.add_parser("live")
    live_parser.add_argument("job")
    live_parser.add_argument("attempt", type=int)
    options = parser.parse_args()
    try:
        if options.command == "start":
            launch = _read_secrets() if options.with_secrets else LaunchSecrets()
            answer = start(options.plan, launch)
        elif options.command == "stop":
            answer = (ask_to_stop if options.ask else stop)(options.grace, options.discard)
        elif options.command == "wipe":
            from tpujob.agent.setup.wipe import wipe_host

            with _command_lock():
                wipe_host(options.epoch, options.key)
            answer = {"ok": True, "state": "wiped"}
        elif options.command == "live":
            from tpujob.agent.live import print_output

            print_output(folder_of_attempt(options.job, options.attempt))
            return 0
        else:
            answer = {"ok": True, "attempts": other_attempts()}
    except Failure as failure:
        answer = {"ok": False, "error": str(failure), "cause": failure.cause}
    except OSError as error:
        answer = {"ok": False, "error": "the host's disk: %s" % error, "cause": "SETUP"}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1
