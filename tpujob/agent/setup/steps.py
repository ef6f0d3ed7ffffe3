"""What is done on a host before an attempt's program starts, in the order in which `daemon.py` asks for it.

The lock files of apt and dpkg are root's and cannot be opened; who holds one is in `/proc/locks`, for everybody.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from typing import Dict, List, Optional, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.attempts import remove_leftovers, stop_others
from tpujob.agent.base import Failure, Note, take_lock, write_json
from tpujob.agent.commands import run_before
from tpujob.agent.folders import (
    ATTEMPTS,
    CACHES,
    HOST_LOCK,
    KEPT_WORK,
    make_empty,
    on_this_host,
)
from tpujob.agent.processes import KILL_PATIENCE, command_of, end_all, family
from tpujob.agent.setup.bundles import lay_out
from tpujob.agent.setup.containers import Container, remove_containers
from tpujob.agent.setup.environments import make_environment
from tpujob.agent.setup.mounts import folder_of, mount_all, unmount_all
from tpujob.agent.setup.preflight import BadDevice, Preflight
from tpujob.agent.setup.staging import Staging
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import (
    OUTPUTS_PATIENCE,
    CompileCache,
    OutputList,
    Outputs,
    SealedFiles,
    UnsignedOutputs,
    cache_name,
)
from tpujob.protocol import Phase, paths


def check_machine(attempt: HostAttempt) -> None:
    """Find out on which physical machine this host is. Raises Failure when programs are kept off it."""
    physical = attempt.metadata.get("attributes/physical-host") or ""
    attempt.state["physical"] = physical[:100]
    attempt.reporter.update({"physical": attempt.state["physical"]})
    if physical and physical in (attempt.plan.get("avoid") or ()):
        text = "the physical machine %s is suspected of wrong numbers" % physical
        raise Failure(text, "PREFLIGHT")


def take_over_host(attempt: HostAttempt) -> None:
    """End what other attempts run, so that this daemon alone owns processes on this host. Raises Failure."""
    grace, own = attempt.plan["grace"], attempt.folder.path
    stop_others(grace, besides=own)
    # an earlier one that was stopped may still bring its outputs to the bucket
    attempt.host_lock = take_lock(HOST_LOCK, OUTPUTS_PATIENCE + KILL_PATIENCE)
    if attempt.host_lock is None:
        raise Failure("another agent does not release this host")
    if end_all(lambda: family(ATTEMPTS), grace):
        raise Failure("processes of an earlier attempt do not end")
    remove_containers()
    wanted = {folder_of(one): one for one in attempt.plan.get("mounts") or ()}
    unmount_all(attempt.log.note, besides=wanted)
    remove_leftovers(own)


def prepare_environment(attempt: HostAttempt, bundles: List[str]) -> None:
    """Mount the buckets and make the environment. Raises Failure, Stopped."""
    mounts, asked = attempt.plan.get("mounts") or [], attempt.plan.get("environment")
    if not mounts and not asked:
        return
    attempt.phase(Phase.SETUP)
    in_image = bool(asked) and asked.get("kind") == "docker"
    if mounts:
        attempt.aside(lambda: mount_all(mounts, attempt.log.note, in_image))
    if asked and in_image:
        visible = [folder_of(one) for one in mounts]
        visible += [on_this_host(one["to"]) for one in attempt.plan.get("stage") or ()]
        container = Container(attempt, asked, visible)
        container.make()
        attempt.runtime = container
    elif asked:
        attempt.runtime = make_environment(attempt, asked, bundles)


def stage_data(attempt: HostAttempt) -> None:
    """Bring the data that the plan names to this host. Raises Failure, Stopped."""
    for order in attempt.plan.get("stage") or ():
        attempt.phase(Phase.SETUP)
        staging = Staging(order, attempt.storage, attempt.log.note)
        try:
            attempt.aside(staging.run)
        finally:
            staging.cancel()  # if the attempt has to stop, threads end soon


def restore_outputs(attempt: HostAttempt) -> None:
    """Lay out what an earlier attempt kept of the program's folders, and keep them from now on. Raises Failure,
    Stopped."""
    plan = attempt.plan
    folders = plan.get("outputs")
    if not folders:
        return
    where, host = plan["workdir"], plan["host"]
    owner = [plan["job"], repr(plan.get("created_at", 0.0)), str(host)]
    path = paths.outputs_list(where, host)
    signed = OutputList(attempt.storage, path, attempt.cache_key, owner)
    kept, work, note = paths.outputs_folder(where, host), attempt.folder.work, attempt.log.note
    attempt.phase(Phase.SETUP)
    outputs = Outputs(attempt.storage, work, folders, kept, signed, note)
    try:
        attempt.aside(outputs.restore)
    except UnsignedOutputs as error:
        raise Failure(str(error), "PERMISSION") from error
    except (OSError, StorageError) as error:
        raise Failure("the outputs of an earlier attempt cannot be laid out: %s" % error) from error
    attempt.progress.held, attempt.outputs = True, outputs
    outputs.follow(attempt.wake)


def prepare_folder(attempt: HostAttempt, bundles: List[str]) -> None:
    """Make the program's folder, with the bundles in it and set-up done. What a set-up made is kept for later attempts
    at the same path, as it may hold absolute paths. Raises Failure, Stopped."""
    setup, work, note = attempt.plan.get("setup"), attempt.folder.work, attempt.log.note
    if not setup:
        make_empty(work)
        lay_out(bundles, work, attempt.aside)
        return
    keys = [attempt.runtime.key] if attempt.runtime.key else []
    named = json.dumps([attempt.plan["job"], setup, attempt.plan["bundles"], *keys])
    kept = os.path.join(KEPT_WORK, hashlib.sha256(named.encode()).hexdigest()[:16])
    done = kept + ".done"
    if not os.path.lexists(work):
        os.symlink(kept, work)
    if os.path.exists(done) and os.path.isdir(kept):
        note("set-up was done on this host before")
        return
    make_empty(kept)
    lay_out(bundles, work, attempt.aside)
    attempt.phase(Phase.SETUP)
    if may_install(setup):
        attempt.aside(lambda: wait_for_others(note))
    argv, forever = ["bash", "-c", setup], float("inf")
    code = run_before(attempt, argv, b"[setup] ", forever, attempt.secrets)
    if code != 0:
        raise Failure("set-up ended with exit code %d; its log says why" % code)
    write_json(done, {"attempt": attempt.plan["attempt"]})


def run_preflight(attempt: HostAttempt) -> None:
    """Check this host and, with the others, all of them. Raises Failure, Stopped."""
    order = attempt.plan.get("preflight")
    if not order:
        return
    attempt.phase(Phase.PREFLIGHT)
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
    """Fetch what was compiled before for the installed versions and this type of TPU. Raises Stopped."""
    plan = attempt.plan
    type, shared = plan.get("type"), plan.get("shared")
    name = cache_name(type or "", attempt.state["versions"])
    if name and type:
        folder, where = os.path.join(CACHES, *name.split("/")), "%s/%s" % (shared, name)
        files = SealedFiles(attempt.storage, where + "/", attempt.cache_key)
        attempt.compile_cache = CompileCache(files, folder, attempt.log.note)
        attempt.aside(attempt.compile_cache.fill)
        if plan["host"] == 0:
            attempt.compile_cache.follow()


# Package locks: a new VM upgrades itself for minutes, and a second apt would fail at once ----------------------------


#: those of dpkg and apt; another list by TPUJOB_PACKAGE_LOCKS
PACKAGE_LOCKS = (
    "/var/lib/dpkg/lock-frontend:/var/lib/dpkg/lock"
    ":/var/lib/apt/lists/lock:/var/cache/apt/archives/lock"
)
LOCK_PATIENCE = 600.0  #: seconds; unattended-upgrades was seen to take ten minutes
PAUSE = 1.0  #: between two looks; unattended-upgrades lets go for a moment between two packages
_INSTALLS = re.compile(r"\b(apt|apt-get|aptitude|dpkg|sudo)\b|\.sh\b")


def may_install(setup: str) -> bool:
    """Whether that shell text names a tool for system packages, or a script that may."""
    return _INSTALLS.search(setup) is not None


def wait_for_others(note: Note, patience: float = LOCK_PATIENCE) -> None:
    """Return when no lock is held on two looks in a row, or after `patience` seconds; the log says which."""
    holder = _holder()
    if holder is None:
        return
    begin = time.monotonic()
    note("waiting for %s, which installs packages (%s)" % holder)
    free = 0
    while free < 2:
        if time.monotonic() - begin > patience:
            note("packages are still being installed after %.0f s: continuing" % patience)
            return
        time.sleep(PAUSE)
        free = 0 if _holder() else free + 1
    note("the package locks are free after %.0f s" % (time.monotonic() - begin))


def _holder() -> Optional[Tuple[str, str]]:
    """Return a program and the lock file that it holds, or None if no lock is held."""
    files: Dict[str, str] = {}
    for path in os.environ.get("TPUJOB_PACKAGE_LOCKS", PACKAGE_LOCKS).split(":"):
        try:
            found = os.stat(path)
        except OSError:
            continue
        device = "%02x:%02x:%d" % (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
        files[device] = path
    try:
        with open("/proc/locks", encoding="ascii") as table:
            lines = [line.split() for line in table]
    except OSError:
        return None
    for words in lines:
        # number, kind, ADVISORY, WRITE, pid, file; one that waits has `->` behind its number
        if len(words) > 5 and words[3] == "WRITE" and words[5] in files:
            command = command_of(int(words[4])) or "a process"
            return "%s (pid %s)" % (command, words[4]), files[words[5]]
    return None
