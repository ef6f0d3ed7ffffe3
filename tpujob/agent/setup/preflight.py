"""The check before a program starts. What passed is kept on the host, so that an attempt soon after need not ask the
devices again.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pkgutil
import secrets
import shutil
import time
from typing import Dict, List, Optional, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Failure, Record, read_json, remove_file, write_json
from tpujob.agent.commands import injected_fault, run_before
from tpujob.agent.folders import PREFLIGHT, ROOT
from tpujob.agent.processes import command_of, device_files, free_devices, hidden_holders, holders
from tpujob.agent.setup.meeting import Meetings, closed_port, first_closed
from tpujob.agent.storage import StorageError, insist
from tpujob.protocol import VERSIONS, Plan, PreflightOrder, VerdictDocument, paths
from tpujob.protocol.limits import MAX_VERDICT_TEXT
from workloads.contract import faults

ROOM, ROOM_SHARE = 2 * 1024**3, 0.05  #: of the disk that must be free: bytes, and part of the whole
SKEW_WARNS, SKEW_FAILS = 60.0, 600.0  #: seconds between this host's clock and the storage's
ARRIVAL = 2  #: times the budget, for hosts whose set-up takes longer than others'
QUICK = 5.0  #: seconds that a part gets, at least, however long those before took
#: seconds for the hosts to exchange the results of their devices
SETTLE = 15.0
TRIES = 10.0  #: seconds that the storage may be away
CURE = "add jax[tpu] to it, or leave out `env` and the bundled program brings its own"


class Preflight:
    def __init__(self, attempt: HostAttempt, order: PreflightOrder) -> None:
        self._attempt, self._asked = attempt, order
        self._plan, self._storage, self._aside = attempt.plan, attempt.storage, attempt.aside
        self._started = time.monotonic()
        self._meetings: Optional[Meetings] = None  #: where there are other hosts
        plan, (name, _, port) = attempt.plan, order.get("meeting", "").rpartition(":")
        if plan["hosts"] > 1 and name:
            address = (name.strip("[]"), int(port))
            self._meetings = Meetings(plan["host"], plan["hosts"], address, attempt.key)
            attempt.closers.append(self._meetings.close)
        #: of Python and what belongs to JAX, where the program runs
        self.versions: Dict[str, str] = {}

    def check(self) -> None:
        """Every check, the cheapest first. Raises Failure, Stopped."""
        self._aside(self._quick)
        facts = self._facts()
        key = key_of(self._plan, self._asked, facts)
        if not self._may_skip(self._meeting(facts, is_fresh(key))):
            invalidate()
            self._devices()
            write_json(PREFLIGHT, {"at": time.time(), "passed": key})

    # On this host

    def _quick(self) -> None:
        self._disk()
        self._workdir()
        self._clock()
        files = device_files()
        left = holders(files) | hidden_holders(files)
        if left:
            names = ", ".join(sorted(map(command_of, left)))
            raise Failure("the TPU is held by %s" % names, "PREFLIGHT")
        self._note("device", "nothing holds it" if files else "there are no device files")

    def _disk(self) -> None:
        usage = shutil.disk_usage(ROOT)
        free, share = usage.free / 1024**3, usage.free / usage.total
        self._note("disk", "%.1f GiB are free (%.0f %%)" % (free, 100 * share))
        if usage.free < ROOM or share < ROOM_SHARE:
            text = "%.1f GiB (%.0f %%) of the disk are free, and %.0f GiB and %.0f %% are needed"
            needed = (ROOM / 1024**3, 100 * ROOM_SHARE)
            raise Failure(text % (free, 100 * share, *needed), "PREFLIGHT")

    def _workdir(self) -> None:
        folder = paths.attempt_folder(self._plan["workdir"], self._plan["attempt"])
        path = "%s/preflight/host-%d" % (folder, self._plan["host"])
        data, read = secrets.token_hex(32).encode(), bytearray()

        def use() -> float:
            began = time.monotonic()
            read.clear()
            self._storage.put(path, data)
            self._storage.read(path, read.extend)
            self._storage.delete(path)
            return time.monotonic() - began

        try:
            took: float = insist(use, TRIES)
        except StorageError as error:
            text = "the workdir cannot be written, read and deleted in: %s" % error
            raise Failure(text[:400], "PREFLIGHT") from error
        if bytes(read) != data:
            raise Failure("the workdir returns other bytes than were written", "PREFLIGHT")
        self._note("workdir", "written, read and deleted in %.2f s" % took)

    def _clock(self) -> None:
        skew = self._storage.skew
        if skew is None:
            return self._note("clock", "the storage sends no time")
        text = "%.0f s off the storage's" % abs(skew)
        self._note("clock", text + (", which is much" if abs(skew) > SKEW_WARNS else ""))
        if abs(skew) > SKEW_FAILS:
            limit = "at most %.0f s are expected" % SKEW_FAILS
            raise Failure("the clock of this host is %s, and %s" % (text, limit), "PREFLIGHT")
        return None

    # Of all hosts

    def _facts(self) -> Record:
        """Return what is installed where the program runs; empty: its Python cannot tell, and need not."""
        seconds = max(QUICK, self._left())
        until = time.monotonic() + seconds
        code, result = self._script("facts", seconds)
        if code != 0 and self._asked["required"]:
            if code == 127:
                raise Failure("there is no python3 %s; %s" % (self._inside(), CURE))
            text = "the program's Python cannot list what is installed (exit code %d)"
            if time.monotonic() >= until:
                raise Failure(text % code, "PREFLIGHT", late=True)
            raise Failure(text % code)
        if code != 0:
            return {}
        installed: Record = result.get("versions") or {}
        self.versions = {name: str(v)[:60] for name, v in installed.items() if v}
        return result

    def _meeting(self, facts: Record, fresh: bool) -> List[Record]:
        """The messages of all hosts, which agree. Raises Failure."""
        bundles = [os.path.basename(path)[:12] for path in self._plan["bundles"]]
        usable = bool(facts.get("usable"))
        versions: Record = facts.get("versions") or {}
        word: Record = {"host": self._plan["host"], "versions": versions, "bundles": bundles}
        word.update(usable=usable, fresh=fresh, closed=self._aside(self._closed))
        words = [word]
        if self._meetings is not None:
            before = time.monotonic()
            words = self._meet(word, ARRIVAL * float(self._asked["seconds"]))
            self._started += time.monotonic() - before  # to wait for others is no check
            self._note("hosts", "all %d have arrived" % len(words))
        closed = first_closed(words)
        if closed:
            raise closed
        odd = difference(words)
        if odd:  # what is installed is no fault of a machine
            raise Failure("%s; pin the versions that `env` or `setup` installs" % odd)
        named = ["%s %s" % (name, versions[name]) for name in VERSIONS if versions.get(name)]
        of_jax = "" if versions.get("jax") else "; nothing of JAX is installed"
        self._note("versions", (", ".join(named) or "no Python") + of_jax)
        return words

    def _closed(self) -> Optional[int]:
        """The first port of host 0 on which programs meet, and from which this host gets no answer; None: each
        answers."""
        if self._plan["host"] == 0:
            return None
        name, _, port = self._asked["coordinator"].rpartition(":")
        ports = [int(port), *self._asked.get("ports", ())]
        return closed_port(name.strip("[]"), ports, self._attempt.check_stop)

    def _meet(self, word: Record, patience: float) -> List[Record]:
        assert self._meetings is not None
        meet, check_stop = self._meetings.meet, self._attempt.check_stop
        return list(self._aside(lambda: meet(word, patience, check_stop)))

    def _may_skip(self, words: List[Record]) -> bool:
        """Whether the devices need not be asked. Decided from the messages of all hosts alone, so that all decide
        alike. Raises Failure."""
        if all(word["fresh"] for word in words):
            self._note("devices", "checked on all hosts less than an hour ago")
            return True
        useless = [word["host"] for word in words if not word["usable"]]
        if not useless:
            return False
        lacking = not words[0]["versions"].get("jax")
        what = "jax is not installed" if lacking else "jax has no libtpu to reach a TPU"
        if self._asked["required"]:  # no fault of the machine: another one would lack it, too
            raise Failure("%s on host %d, %s; %s" % (what, useless[0], self._inside(), CURE))
        self._note("devices", "%s: devices were not checked" % what)
        return True

    def _devices(self) -> None:
        """Ask the devices and tell the other hosts, so that all end alike. Raises Failure."""
        before = time.monotonic()
        found = self._ask(max(QUICK, self._left()))
        self._aside(lambda: free_devices(0), whole=True)
        words: List[Record] = [{"host": self._plan["host"], **found}]
        if self._meetings is not None:
            words = self._meet(found, max(0.0, self._left()) + SETTLE)
        counts = (found.get("devices"), found.get("kind"), found.get("total"))
        worst = min(
            words, key=lambda w: (not w["lies"], not w["error"], bool(w.get("late")), w["host"])
        )
        own = worst["host"] == self._plan["host"]
        text = worst["error"] if own else "host %d: %s" % (worst["host"], worst["error"])
        if worst["lies"]:
            raise BadDevice(text, worst["host"], worst["device"])
        if worst["error"]:
            raise Failure(text, "PREFLIGHT", late=bool(worst.get("late")))
        took = time.monotonic() - before
        self._note("devices", "%s of %s, %s in all, gave right answers" % counts)
        self._attempt.log.note("pre-flight: the devices took %.1f s" % took)

    def _ask(self, seconds: float) -> Record:
        """Return what `devices.py` found, with `error` (empty: all is well), `lies` and `device`."""
        spoilt = None
        with contextlib.suppress(ValueError):  # the program will say so
            fault = faults.parse(injected_fault(self._plan))
            spoilt = fault.device if fault and fault.kind == "preflight" else None
        order: Record = dict(self._asked, host=self._plan["host"], spoilt=spoilt, seconds=seconds)
        until = time.monotonic() + seconds
        code, result = self._script("check", seconds, json.dumps(order))
        error = str(result.get("error") or "")
        stage, late = result.get("stage", "its start"), False
        if error and not result.get("wrong"):
            error = "%s, at %s" % (error, stage)
        elif not error and not result.get("ok"):
            late = time.monotonic() >= until
            how = "was not done within %.0f s" % seconds if late else "ended with code %d" % code
            error = "the check of the devices %s, at %s" % (how, stage)
        device = str(result.get("device", ""))[:100]
        lies = bool(result.get("lies"))
        return dict(result, error=error[:400], lies=lies, late=late, device=device)

    # Helpers

    def _script(self, what: str, patience: float, *more: str) -> Tuple[int, Record]:
        """Exit code and result of `devices.py`, run as the program will be."""
        folder = self._attempt.folder.preflight
        os.makedirs(folder, exist_ok=True)
        script, result = os.path.join(folder, "devices.py"), os.path.join(folder, what + ".json")
        with open(script, "wb") as file:
            file.write(pkgutil.get_data("tpujob.agent.setup", "devices.py") or b"")
        remove_file(result)
        first = self._plan["argv"][0]
        python = first if os.path.basename(first).startswith("python") else "python3"
        argv = [python, script, what, result, *more]
        return run_before(self._attempt, argv, b"[pre-flight] ", patience), read_json(result)

    def _inside(self) -> str:
        """Where the program runs, in words."""
        asked = self._plan.get("environment")
        if not asked or not self._attempt.runtime.key:
            return "in the host's own Python"
        return "in the environment of %s" % (asked.get("file") or asked.get("image"))

    def _left(self) -> float:
        return self._started + float(self._asked["seconds"]) - time.monotonic()

    def _note(self, check: str, text: str) -> None:
        self._attempt.log.note("pre-flight: %s: %s" % (check, text))


class BadDevice(Failure):
    """A device of this or another host gave a wrong answer. `device` is empty when it is not known which."""

    def __init__(self, text: str, host: int, device: str) -> None:
        super().__init__(text, "BAD_HOST")
        of, text = host if device else None, text[:MAX_VERDICT_TEXT]
        self.verdict = VerdictDocument(step=None, host=of, device=device, blame="device", text=text)


def difference(words: List[Record]) -> str:
    """Which host has something else installed than the others; empty: none."""
    for name in (*VERSIONS, "code"):
        found = [_shown(word, name) for word in words]
        (usual, times), *others = collections.Counter(found).most_common()
        if others:
            odd = next(i for i, value in enumerate(found) if value != usual)
            if times * 2 == len(found) and odd == 0:  # no majority: host 0 is the standard
                odd, usual = next(i for i, v in enumerate(found) if v != found[0]), found[0]
            text = "host %d has %s %s, and %s is expected"
            return text % (words[odd]["host"], name, found[odd], usual)
    return ""


def _shown(word: Record, name: str) -> str:
    if name == "code":
        return " ".join(word.get("bundles") or []) or "none"
    versions: Record = word.get("versions") or {}
    version = str(versions.get(name) or "none")
    # of Python, what programs are compiled for: 3.11
    return ".".join(version.split(".")[:2]) if name == "python" else version


# The result that is kept ---------------------------------------------------------------------------------------------


BOOT_ID = "/proc/sys/kernel/random/boot_id"
FRESH = 3600.0  #: seconds for which a check of the devices holds


def key_of(plan: Plan, order: PreflightOrder, facts: Record) -> Record:
    """What must be the same for an earlier check to hold. `facts`: what is installed where the program runs."""
    boot = ""
    with contextlib.suppress(OSError), open(BOOT_ID, encoding="ascii") as file:
        boot = file.read().strip()
    asked = {"slice": order["slice"], "chips": order["chips"], "hosts": order["hosts"]}
    bundles = [os.path.basename(path) for path in plan["bundles"]]
    return {**asked, "versions": facts.get("versions") or {}, "bundles": bundles, "boot": boot}


def is_fresh(key: Record) -> bool:
    """Whether a check of the same devices with the same code passed on this host a short while ago."""
    kept = read_json(PREFLIGHT)
    at = kept.get("at")
    recent = isinstance(at, (int, float)) and 0 <= time.time() - at < FRESH
    return recent and kept.get("passed") == key


def invalidate() -> None:
    """Have the next check ask the devices: an attempt ended in a way that they may be to blame for."""
    remove_file(PREFLIGHT)
