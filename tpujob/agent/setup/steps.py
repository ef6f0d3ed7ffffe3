"""What is made ready on a host before an attempt's program starts: the host, the environment, the program's folder, the
check, the programs that were compiled before. In the order in which `daemon.py` asks for them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from typing import Dict, List

from tpujob.agent.attempt import Attempt
from tpujob.agent.attempts import other_states, stop_others
from tpujob.agent.base import (
    ATTEMPTS,
    CACHES,
    ROOT,
    Failure,
    Record,
    fresh_folder,
    take_lock,
    write_json,
)
from tpujob.agent.commands import run_bare, run_before
from tpujob.agent.preflight.check import Lie, Preflight
from tpujob.agent.processes import KILL_PATIENCE, end_all, family
from tpujob.agent.setup.bundles import lay_out
from tpujob.agent.setup.compiled import Compiled, name_of
from tpujob.agent.setup.containers import Container, remove_all
from tpujob.agent.setup.environments import Builder
from tpujob.agent.setup.mounts import folder_of, mount_all, unmount_all
from tpujob.agent.setup.packages import may_install, wait_for_others

STEP_PATIENCE = 3600.0  #: seconds for one step on the way to an environment


def meet_machine(attempt: Attempt) -> None:
    """On which physical machine this host is. Raises Failure when programs are kept off it."""
    physical = attempt.metadata.get("attributes/physical-host") or ""
    attempt.state["physical"] = physical[:100]
    attempt.reporter.update({"physical": attempt.state["physical"]})
    if physical and physical in (attempt.plan.get("avoid") or ()):
        text = "the physical machine %s is suspected of wrong numbers" % physical
        raise Failure(text, "PREFLIGHT")


def take_over(attempt: Attempt) -> None:
    """This daemon alone may own processes on this host afterwards: every other attempt's have ended. Raises
    Failure."""
    grace = attempt.plan["grace"]
    stop_others(grace, besides=attempt.folder)
    attempt.host_lock = take_lock(os.path.join(ROOT, "host.lock"), KILL_PATIENCE)
    if attempt.host_lock is None:
        raise Failure("another agent does not let go of this host")
    if end_all(lambda: family(ATTEMPTS), grace):
        raise Failure("processes of an earlier attempt do not end")
    remove_all()
    wanted = {folder_of(one): one for one in attempt.plan.get("mounts") or ()}
    unmount_all(attempt.log.note, besides=wanted)
    for state in other_states(attempt.folder):
        for name in ("work", "spool"):
            path = os.path.join(state["folder"], name)
            if not os.path.islink(path) and state["phase"] == "exited" and not state["live"]:
                shutil.rmtree(path, ignore_errors=True)


def furnish(attempt: Attempt, bundles: List[str]) -> None:
    """The buckets are mounted, and the environment is there. Raises Failure, Stopped."""
    mounts: List[Record] = attempt.plan.get("mounts") or []
    asked: Record = attempt.plan.get("environment") or {}
    if not mounts and not asked:
        return
    attempt.phase("setup")
    note, in_image = attempt.log.note, asked.get("kind") == "docker"
    if mounts:
        attempt.aside(lambda: mount_all(mounts, note, in_image))

    def step(argv: List[str], cwd: str, variables: Dict[str, str]) -> int:
        return run_bare(attempt, argv, b"[env] ", STEP_PATIENCE, cwd, variables)

    if in_image:
        places = [folder_of(one) for one in mounts]
        container = Container(attempt.plan, attempt.folder, places)
        container.make(note, lambda argv: step(argv, ROOT, {}))
        attempt.place = container
    elif asked:
        means = (attempt.storage, note, step, attempt.aside)
        builder = Builder(attempt.plan, bundles, *means)
        attempt.place = builder.make()
        attempt.keeping = builder.keeping


def prepare(attempt: Attempt, bundles: List[str]) -> None:
    """The program's folder is there, with the bundles in it and set-up done. Raises Failure, Stopped."""
    setup = attempt.plan.get("setup")
    if setup:
        _prepare_once(attempt, bundles, setup)
    else:
        fresh_folder(attempt.work)
        lay_out(bundles, attempt.work, attempt.aside)


def _prepare_once(attempt: Attempt, bundles: List[str], setup: str) -> None:
    """What a set-up made is kept for later attempts at the same place, as it may hold absolute paths."""
    kept = _kept_for(attempt, setup)
    done = kept + ".done"
    if not os.path.lexists(attempt.work):
        os.symlink(kept, attempt.work)
    if os.path.exists(done) and os.path.isdir(kept):
        attempt.log.note("set-up was done on this host before")
        return
    fresh_folder(kept)
    lay_out(bundles, attempt.work, attempt.aside)
    _set_up(attempt, setup)
    write_json(done, {"attempt": attempt.plan["attempt"]})


def _kept_for(attempt: Attempt, setup: str) -> str:
    """The folder of whoever does the same set-up."""
    keys = [attempt.place.key] if attempt.place.key else []
    named = json.dumps([attempt.plan["job"], setup, attempt.plan["bundles"], *keys])
    return os.path.join(ROOT, "work", hashlib.sha256(named.encode()).hexdigest()[:16])


def _set_up(attempt: Attempt, setup: str) -> None:
    attempt.phase("setup")
    if may_install(setup):
        attempt.aside(lambda: wait_for_others(attempt.log.note))
    code = run_before(attempt, ["bash", "-c", setup], b"[setup] ", float("inf"))
    if code != 0:
        raise Failure("set-up ended with exit code %d; its log says why" % code)


def check(attempt: Attempt) -> None:
    """Everything is as it should be, here and on the other hosts. Raises Failure, Stopped."""
    attempt.phase("preflight")
    run = functools.partial(run_before, attempt)
    means = (attempt.log.note, run, attempt.aside, attempt.told)
    preflight = Preflight(attempt.plan, attempt.folder, attempt.storage, *means)
    try:
        preflight.go()
    except Lie as lie:
        attempt.state["verdict"] = lie.verdict
        raise
    finally:
        attempt.state["versions"] = preflight.versions
        attempt.reporter.update({"versions": preflight.versions})


def fetch_compiled(attempt: Attempt) -> None:
    """What was compiled before for such hosts is here, once it is known what is installed. Raises Stopped."""
    plan = attempt.plan
    name = name_of(str(plan.get("type") or ""), attempt.state["versions"])
    if name and plan.get("type"):
        where = "%s/%s" % (plan["shared"], name)
        folder = os.path.join(CACHES, *name.split("/"))
        attempt.compiled = Compiled(attempt.storage, folder, where, attempt.log.note)
        attempt.aside(attempt.compiled.fill)
        if plan["host"] == 0:
            attempt.compiled.follow()
