"""The steps before an attempt's program starts, in the order in which `daemon.py` runs them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from typing import Dict, List, Optional, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.attempts import other_attempts, remove_leftovers, stop_others, was_killed
from tpujob.agent.base import Failure, Note, Stopped, take_lock, write_json
from tpujob.agent.commands import run_before_program
from tpujob.agent.folders import (
    ATTEMPTS,
    CACHES,
    HOST_LOCK,
    KEPT_WORK,
    AttemptFolder,
    on_this_host,
)
from tpujob.agent.processes import KILL_PATIENCE, attempt_processes, command_of, end_all, make_empty
from tpujob.agent.setup.bundles import lay_out
from tpujob.agent.setup.containers import Container, remove_containers
from tpujob.agent.setup.environments import make_environment
from tpujob.agent.setup.mounts import folder_of, mount_all, unmount_all
from tpujob.agent.setup.package_index import IndexProbe
from tpujob.agent.setup.preflight import BadDevice, Preflight
from tpujob.agent.setup.staging import Staging
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import (
    OUTPUTS_PATIENCE,
    CompileCache,
    OutputList,
    Outputs,
    ProgressReader,
    SealedFiles,
    UnsignedOutputs,
    cache_name,
)
from tpujob.contract import EVENTS
from tpujob.protocol import Phase, paths


def check_machine(attempt: HostAttempt) -> None:
    """Report the physical machine of this host. Raises Failure if the plan avoids that machine."""
    physical = attempt.metadata.get("attributes/physical-host") or ""
    attempt.state["physical"] = physical[:100]
    attempt.reporter.update({"physical": attempt.state["physical"]})
    reason = (attempt.plan.get("avoid") or {}).get(physical)
    if physical and reason:
        text = "the program is kept off the physical machine %s: %s" % (physical, reason)
        raise Failure(text[:400], "PREFLIGHT")


def take_over_host(attempt: HostAttempt) -> None:
    """Take the host's lock, and end the processes, containers and mounts of other attempts. Raises Failure."""
    grace, own_folder = attempt.plan["grace"], attempt.folder.path
    stop_others(grace, besides=own_folder)
    take_lock_of_host(attempt)
    if end_all(lambda: attempt_processes(ATTEMPTS), grace):
        raise Failure("processes of an earlier attempt do not end")
    remove_containers()
    mounts = {folder_of(mount): mount for mount in attempt.plan.get("mounts") or ()}
    unmount_all(attempt.log.note, besides=mounts)
    remove_leftovers(own_folder)


def take_lock_of_host(
    attempt: HostAttempt, path: str = HOST_LOCK, kill_patience: float = KILL_PATIENCE
) -> None:
    """Take the lock of the one daemon that may start processes. Raises Failure."""
    # a stopped attempt may still upload its outputs
    attempt.host_lock = take_lock(path, OUTPUTS_PATIENCE + kill_patience)
    if attempt.host_lock is None:
        raise Failure("another agent does not release this host")


def prepare_environment(attempt: HostAttempt, bundles: List[str]) -> None:
    """Mount the buckets and make the environment. Raises Failure, Stopped."""
    mounts, order = attempt.plan.get("mounts") or [], attempt.plan.get("environment")
    if not mounts and not order:
        return
    attempt.set_phase(Phase.SETUP)
    in_image = bool(order) and order.get("kind") == "docker"
    if mounts:
        attempt.run_aside(lambda: mount_all(mounts, attempt.log.note, in_image))
    if order and in_image:
        visible = [folder_of(mount) for mount in mounts]
        visible += [on_this_host(data["to"]) for data in attempt.plan.get("stage") or ()]
        container = Container(attempt, order, visible)
        container.make()
        attempt.runtime = container
    elif order:
        attempt.runtime = make_environment(attempt, order, bundles)


def continue_environment(attempt: HostAttempt) -> None:
    """Use the container of a program that is taken over; other environments are not needed any more. Raises
    Failure."""
    order = attempt.plan.get("environment")
    if order and order.get("kind") == "docker":
        container = Container(attempt, order, [])
        container.take_over()
        attempt.runtime = container


def stage_data(attempt: HostAttempt) -> None:
    """Copy the plan's data sets to this host. Raises Failure, Stopped."""
    for order in attempt.plan.get("stage") or ():
        attempt.set_phase(Phase.SETUP)
        staging = Staging(order, attempt.storage, attempt.log.note)
        try:
            attempt.run_aside(staging.run)
        finally:
            staging.cancel()  # ends the threads soon if the attempt has to stop


def prepare_folder(attempt: HostAttempt, bundles: List[str]) -> None:
    """Make the program's folder from the bundles, and run set-up in it. Set-up runs once: later attempts use the same
    folder, at the same path, as it may have absolute paths in it. Raises Failure, Stopped."""
    setup, work, note = attempt.plan.get("setup"), attempt.folder.work, attempt.log.note
    if not setup:
        make_empty(work)
        lay_out(bundles, work, attempt.run_aside)
        return
    keys = [attempt.runtime.key] if attempt.runtime.key else []
    inputs = json.dumps([attempt.plan["job"], setup, attempt.plan["bundles"], *keys])
    folder = os.path.join(KEPT_WORK, hashlib.sha256(inputs.encode()).hexdigest()[:16])
    done = folder + ".done"
    if not os.path.lexists(work):
        os.symlink(folder, work)
    if os.path.exists(done) and os.path.isdir(folder):
        note("set-up was done on this host before")
        return
    make_empty(folder)
    lay_out(bundles, work, attempt.run_aside)
    attempt.set_phase(Phase.SETUP)
    if may_install(setup):
        attempt.run_aside(lambda: wait_for_package_locks(note))
    probe = IndexProbe(attempt) if _INSTALLS_PYTHON.search(setup) else None
    argv = ["bash", "-e", "-o", "pipefail", "-c", NAME_FAILED + setup]
    code = run_before_program(attempt, argv, b"[setup] ", float("inf"), attempt.secrets)
    if code != 0:
        reason = attempt.log.reason(b"[setup] ") + (probe.problem() if probe else "")
        raise Failure(
            "set-up ended with exit code %d%s%s" % (code, _failed_command(attempt), reason)
        )
    write_json(done, {"attempt": attempt.plan["attempt"]})


#: what asks the package index
_INSTALLS_PYTHON = re.compile(r"\bpip3? install|\buv (?:pip|sync|add|run|tool)\b|\buvx\b")
#: in front of set-up, on its first line: writes the command that failed to FAILED_COMMAND
NAME_FAILED = (
    """trap '[ $? = 0 ] || printf %s "$BASH_COMMAND" > "$TPUJOB_OUT/setup-failed"' EXIT; """
)
FAILED_COMMAND, SHOWN = "setup-failed", 100  #: file; bytes of the command that are shown


def _failed_command(attempt: HostAttempt) -> str:
    """Return the command of set-up that failed, after ` in `; empty: unknown, as set-up has a trap of its own."""
    try:
        with open(os.path.join(attempt.folder.out, FAILED_COMMAND), "rb") as file:
            command = file.read(SHOWN).decode("utf-8", "replace")
    except OSError:
        return ""
    return " in `%s`" % " ".join(command.split()) if command else ""  # `sh` does not know it


def keep_outputs_from_now_on(attempt: HostAttempt, restore: bool = True) -> None:
    """Restore the outputs of an earlier attempt, and save outputs from now on. `restore`: false for a program that has
    been started already. Raises Failure, Stopped."""
    plan, host = attempt.plan, attempt.plan["host"]
    folders, shared = plan.get("outputs") or [], plan.get("shared_outputs") or []
    if not folders and not shared:
        return
    outputs = _outputs_in(attempt, attempt.folder.work, host, folders)
    try:
        if not restore:
            with contextlib.suppress(Stopped):  # the program runs already, and is stopped later
                attempt.run_aside(outputs.take_over, whole=True)
        else:
            attempt.set_phase(Phase.SETUP)
            attempt.run_aside(lambda: _save_leftovers(attempt, folders))
            attempt.run_aside(lambda: outputs.restore(shared if host == 0 else ()))
        if restore and shared and host != 0:
            copies = _outputs_in(attempt, attempt.folder.work, 0, shared)
            attempt.run_aside(lambda: copies.restore(shared))
            outputs.restored += copies.restored
    except UnsignedOutputs as error:
        raise Failure(str(error), "PERMISSION") from error
    except (OSError, StorageError) as error:
        raise Failure("the outputs of an earlier attempt cannot be laid out: %s" % error) from error
    attempt.progress.held = True
    attempt.outputs = outputs
    outputs.follow(attempt.wake)


def _outputs_in(attempt: HostAttempt, work: str, host: int, folders: List[str]) -> Outputs:
    """Return the outputs that a host of this job keeps in the bucket, for these folders of `work`."""
    plan, storage = attempt.plan, attempt.storage
    owner = [plan["job"], repr(plan.get("created_at", 0.0)), str(host)]
    path = paths.outputs_list(plan["workdir"], host)
    signed = OutputList(storage, path, attempt.cache_key, owner)
    bucket_folder = paths.outputs_folder(plan["workdir"], host)
    return Outputs(storage, work, folders, bucket_folder, signed, attempt.log.note)


def _save_leftovers(attempt: HostAttempt, folders: List[str]) -> None:
    """Upload the outputs of the previous attempt if its agent was killed here, unless its numbers were not finite.
    Raises StorageError."""
    for state in other_attempts(attempt.folder.path) if folders else ():
        folder = AttemptFolder(state["folder"])
        previous = (state["job"], state["attempt"]) == (
            attempt.plan["job"],
            attempt.plan["attempt"] - 1,
        )
        if not previous or not was_killed(state, folder):
            continue
        progress = ProgressReader(os.path.join(folder.out, EVENTS))
        while progress.look():
            pass
        if progress.facts.get("nonfinite") is None:
            outputs = _outputs_in(attempt, folder.work, attempt.plan["host"], folders)
            outputs.take_over()
            if error := outputs.finish(OUTPUTS_PATIENCE):
                attempt.log.note("of the previous attempt, whose agent was killed: %s" % error)


def run_preflight(attempt: HostAttempt) -> None:
    """Check this host, then all hosts together. Raises Failure, Stopped."""
    order = attempt.plan.get("preflight")
    if not order:
        return
    attempt.set_phase(Phase.PREFLIGHT)
    preflight = Preflight(attempt, order)
    try:
        preflight.check()
    except BadDevice as bad:
        attempt.state["verdict"] = bad.verdict
        raise
    finally:
        attempt.state["versions"] = preflight.versions
        attempt.reporter.update({"versions": preflight.versions})


def fetch_compile_cache(attempt: HostAttempt) -> None:
    """Fetch the programs that were compiled for this type of TPU and the installed versions. Raises Stopped."""
    plan = attempt.plan
    tpu_type = plan.get("type")
    name = cache_name(tpu_type or "", attempt.state["versions"])
    if name and tpu_type:
        folder = os.path.join(CACHES, *name.split("/"))
        bucket_folder = "%s/%s/" % (plan.get("shared"), name)
        files = SealedFiles(attempt.storage, bucket_folder, attempt.cache_key)
        attempt.compile_cache = CompileCache(files, folder, attempt.log.note)
        attempt.run_aside(attempt.compile_cache.fill)
        if plan["host"] == 0:
            attempt.compile_cache.follow()


# Package locks: a new VM upgrades itself for minutes, and a second apt would fail at once ----------------------------


#: the lock files of dpkg and apt; the variable TPUJOB_PACKAGE_LOCKS has another list. Only root can open them, but
#: `/proc/locks` shows their holders to every user.
PACKAGE_LOCKS = (
    "/var/lib/dpkg/lock-frontend:/var/lib/dpkg/lock"
    ":/var/lib/apt/lists/lock:/var/cache/apt/archives/lock"
)
LOCK_PATIENCE = 600.0  #: seconds that set-up waits; unattended-upgrades can take ten minutes
PAUSE = 1.0  #: seconds between two checks
_INSTALLS = re.compile(r"\b(apt|apt-get|aptitude|dpkg|sudo)\b|\.sh\b")


def may_install(setup: str) -> bool:
    """Return whether a shell text calls a tool for system packages, or a script that may call one."""
    return _INSTALLS.search(setup) is not None


def wait_for_package_locks(
    note: Note, patience: float = LOCK_PATIENCE, pause: float = PAUSE
) -> None:
    """Wait until no package lock is held, or for `patience` seconds. Two checks in a row count, as unattended-upgrades
    releases its lock for a moment between two packages."""
    holder = _find_lock_holder()
    if holder is None:
        return
    begin = time.monotonic()
    note("waiting for %s, which installs packages (%s)" % holder)
    free = 0
    while free < 2:
        if time.monotonic() - begin > patience:
            note("packages are still being installed after %.0f s: continuing" % patience)
            return
        time.sleep(pause)
        free = 0 if _find_lock_holder() else free + 1
    note("the package locks are free after %.0f s" % (time.monotonic() - begin))


def _find_lock_holder() -> Optional[Tuple[str, str]]:
    """Return a process that holds a package lock, and the lock file; None: no lock is held."""
    files: Dict[str, str] = {}
    for path in os.environ.get("TPUJOB_PACKAGE_LOCKS", PACKAGE_LOCKS).split(":"):
        try:
            status = os.stat(path)
        except OSError:
            continue
        device = status.st_dev
        files["%02x:%02x:%d" % (os.major(device), os.minor(device), status.st_ino)] = path
    try:
        with open("/proc/locks", encoding="ascii") as table:
            lines = [line.split() for line in table]
    except OSError:
        return None
    for words in lines:
        # number, kind, ADVISORY, WRITE, pid, file; a waiting process has `->` after its number
        if len(words) > 5 and words[3] == "WRITE" and words[5] in files:
            command = command_of(int(words[4])) or "a process"
            return "%s (pid %s)" % (command, words[4]), files[words[5]]
    return None
