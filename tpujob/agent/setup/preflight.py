"""The preflight: checks of host and devices before the program starts. The host keeps the result of passed checks, so
that an attempt soon after skips the check of the devices.
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
from tpujob.agent.commands import injected_fault, run_before_program
from tpujob.agent.folders import PREFLIGHT, ROOT
from tpujob.agent.processes import command_of, device_files, free_devices, holders, holders_as_root
from tpujob.agent.setup.meeting import Meetings, closed_port_failure, find_closed_port
from tpujob.agent.storage import StorageError, retry
from tpujob.contract import faults
from tpujob.protocol import VERSIONS, Plan, PreflightOrder, VerdictDocument, paths
from tpujob.protocol.limits import MAX_VERDICT_TEXT

ROOM, ROOM_SHARE = 2 * 1024**3, 0.05  #: bytes, and share of the disk, that must be free
SKEW_WARNS, SKEW_FAILS = 60.0, 600.0  #: seconds between this host's clock and the storage's
ARRIVAL = 2  #: budgets that hosts wait for each other, as set-up takes longer on some hosts
QUICK = 5.0  #: least seconds for a check, whatever earlier checks took
SETTLE = 15.0  #: seconds for the hosts to exchange the results of their devices
TRIES = 10.0  #: seconds of retries for the storage
CURE = "add jax[tpu] to it, or leave out `env` and the bundled program brings its own"


class Preflight:
    def __init__(self, attempt: HostAttempt, order: PreflightOrder) -> None:
        self._attempt, self._order = attempt, order
        self._plan, self._storage = attempt.plan, attempt.storage
        self._run_aside = attempt.run_aside
        self._started = time.monotonic()
        self._meetings: Optional[Meetings] = None  #: None without other hosts
        plan, (name, _, port) = attempt.plan, order.get("meeting", "").rpartition(":")
        if plan["hosts"] > 1 and name:
            address = (name.strip("[]"), int(port))
            self._meetings = Meetings(plan["host"], plan["hosts"], address, attempt.key)
            attempt.closers.append(self._meetings.close)
        #: installed versions in the program's environment, by the names in VERSIONS
        self.versions: Dict[str, str] = {}

    def check(self) -> None:
        """Run all checks, the cheapest first. Raises Failure, Stopped."""
        self._run_aside(self._check_host)
        facts = self._read_facts()
        key = key_of(self._plan, self._order, facts)
        if not self._may_skip_devices(self._meet_with_facts(facts, is_fresh(key))):
            invalidate()
            self._check_devices()
            write_json(PREFLIGHT, {"at": time.time(), "passed": key})

    # This host

    def _check_host(self) -> None:
        self._check_disk()
        self._check_workdir()
        self._check_clock()
        files = device_files()
        pids = holders(files) | holders_as_root(files)
        if pids:
            names = ", ".join(sorted(map(command_of, pids)))
            raise Failure("the TPU is held by %s" % names, "PREFLIGHT")
        self._note("device", "nothing holds it" if files else "there are no device files")

    def _check_disk(self) -> None:
        usage = shutil.disk_usage(ROOT)
        free, share = usage.free / 1024**3, usage.free / usage.total
        self._note("disk", "%.1f GiB are free (%.0f %%)" % (free, 100 * share))
        if usage.free < ROOM or share < ROOM_SHARE:
            text = "%.1f GiB (%.0f %%) of the disk are free, and %.0f GiB and %.0f %% are needed"
            needed = (ROOM / 1024**3, 100 * ROOM_SHARE)
            raise Failure(text % (free, 100 * share, *needed), "PREFLIGHT")

    def _check_workdir(self) -> None:
        folder = paths.attempt_folder(self._plan["workdir"], self._plan["attempt"])
        path = "%s/preflight/host-%d" % (folder, self._plan["host"])
        data, copy = secrets.token_hex(32).encode(), bytearray()

        def write_read_delete() -> float:
            began = time.monotonic()
            copy.clear()
            self._storage.put(path, data)
            self._storage.read(path, copy.extend)
            self._storage.delete(path)
            return time.monotonic() - began

        try:
            seconds: float = retry(write_read_delete, TRIES)
        except StorageError as error:
            text = "the workdir cannot be written, read and deleted in: %s" % error
            raise Failure(text[:400], "PREFLIGHT") from error
        if bytes(copy) != data:
            raise Failure("the workdir returns other bytes than were written", "PREFLIGHT")
        self._note("workdir", "written, read and deleted in %.2f s" % seconds)

    def _check_clock(self) -> None:
        skew = self._storage.skew
        if skew is None:
            return self._note("clock", "the storage sends no time")
        text = "%.0f s off the storage's" % abs(skew)
        self._note("clock", text + (", which is much" if abs(skew) > SKEW_WARNS else ""))
        if abs(skew) > SKEW_FAILS:
            limit = "at most %.0f s are expected" % SKEW_FAILS
            raise Failure("the clock of this host is %s, and %s" % (text, limit), "PREFLIGHT")
        return None

    # All hosts

    def _read_facts(self) -> Record:
        """Return the facts of `devices.py`; empty if it fails and Python is not required. Raises Failure."""
        seconds = max(QUICK, self._seconds_left())
        until = time.monotonic() + seconds
        code, result = self._run_script("facts", seconds)
        if code != 0 and self._order["required"]:
            if code == 127:
                raise Failure("there is no python3 %s; %s" % (self._describe_place(), CURE))
            text = "the program's Python cannot list what is installed (exit code %d)"
            if time.monotonic() >= until:
                raise Failure(text % code, "PREFLIGHT", late=True)
            raise Failure(text % code)
        if code != 0:
            return {}
        installed: Record = result.get("versions") or {}
        self.versions = {name: str(v)[:60] for name, v in installed.items() if v}
        return result

    def _meet_with_facts(self, facts: Record, fresh: bool) -> List[Record]:
        """Return all hosts' messages. `fresh`: an earlier check holds. Raises Failure if some are missing or differ."""
        bundles = [os.path.basename(path)[:12] for path in self._plan["bundles"]]
        usable = bool(facts.get("usable"))
        versions: Record = facts.get("versions") or {}
        message: Record = {"host": self._plan["host"], "versions": versions, "bundles": bundles}
        message.update(usable=usable, fresh=fresh, closed=self._run_aside(self._find_closed_port))
        messages = [message]
        if self._meetings is not None:
            before = time.monotonic()
            messages = self._meet(message, ARRIVAL * float(self._order["seconds"]))
            self._started += time.monotonic() - before  # waiting does not use up the budget
            self._note("hosts", "all %d have arrived" % len(messages))
        failure = closed_port_failure(messages)
        if failure:
            raise failure
        mismatch = find_difference(messages)
        if mismatch:  # not the machine's fault, so the cause is SETUP
            raise Failure("%s; pin the versions that `env` or `setup` installs" % mismatch)
        texts = ["%s %s" % (name, versions[name]) for name in VERSIONS if versions.get(name)]
        no_jax = "" if versions.get("jax") else "; nothing of JAX is installed"
        self._note("versions", (", ".join(texts) or "no Python") + no_jax)
        return messages

    def _find_closed_port(self) -> Optional[int]:
        """Return the first port for programs on host 0 that gives this host no answer; None: all answer."""
        if self._plan["host"] == 0:
            return None
        name, _, port = self._order["coordinator"].rpartition(":")
        ports = [int(port), *self._order.get("ports", ())]
        return find_closed_port(name.strip("[]"), ports, self._attempt.check_stop)

    def _meet(self, message: Record, patience: float) -> List[Record]:
        assert self._meetings is not None
        meet, check_stop = self._meetings.meet, self._attempt.check_stop
        return self._run_aside(lambda: meet(message, patience, check_stop))

    def _may_skip_devices(self, messages: List[Record]) -> bool:
        """Return whether the devices need no check. All hosts agree, as only messages count. Raises Failure."""
        if all(message["fresh"] for message in messages):
            self._note("devices", "checked on all hosts less than an hour ago")
            return True
        unusable = [message["host"] for message in messages if not message["usable"]]
        if not unusable:
            return False
        no_jax = not messages[0]["versions"].get("jax")
        problem = "jax is not installed" if no_jax else "jax has no libtpu to reach a TPU"
        if self._order["required"]:  # not the machine's fault, so the cause is SETUP
            place = self._describe_place()
            raise Failure("%s on host %d, %s; %s" % (problem, unusable[0], place, CURE))
        self._note("devices", "%s: devices were not checked" % problem)
        return True

    def _check_devices(self) -> None:
        """Check the devices and exchange the results, so that all hosts fail or pass alike. Raises Failure."""
        before = time.monotonic()
        result = self._run_check(max(QUICK, self._seconds_left()))
        self._run_aside(lambda: free_devices(0), whole=True)
        results: List[Record] = [{"host": self._plan["host"], **result}]
        if self._meetings is not None:
            results = self._meet(result, max(0.0, self._seconds_left()) + SETTLE)
        worst = min(
            results, key=lambda r: (not r["lies"], not r["error"], bool(r.get("late")), r["host"])
        )
        is_own = worst["host"] == self._plan["host"]
        text = worst["error"] if is_own else "host %d: %s" % (worst["host"], worst["error"])
        if worst["lies"]:
            raise BadDevice(text, worst["host"], worst["device"])
        if worst["error"]:
            raise Failure(text, "PREFLIGHT", late=bool(worst.get("late")))
        seconds = time.monotonic() - before
        counts = (result.get("devices"), result.get("kind"), result.get("total"))
        self._note("devices", "%s of %s, %s in all, gave right answers" % counts)
        self._attempt.log.note("pre-flight: the devices took %.1f s" % seconds)

    def _run_check(self, seconds: float) -> Record:
        """Return the result of `devices.py`, with `error` (empty: passed), `late`, `lies` and `device`."""
        spoilt = None
        with contextlib.suppress(ValueError):  # the program will report the invalid fault
            fault = faults.parse(injected_fault(self._plan))
            spoilt = fault.device if fault and fault.kind == "preflight" else None
        order: Record = dict(self._order, host=self._plan["host"], spoilt=spoilt, seconds=seconds)
        until = time.monotonic() + seconds
        code, result = self._run_script("check", seconds, json.dumps(order))
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

    def _run_script(self, mode: str, patience: float, *arguments: str) -> Tuple[int, Record]:
        """Run `devices.py` in the program's environment. Return its exit code and result."""
        folder = self._attempt.folder.preflight
        os.makedirs(folder, exist_ok=True)
        script, result = os.path.join(folder, "devices.py"), os.path.join(folder, mode + ".json")
        with open(script, "wb") as file:
            file.write(pkgutil.get_data("tpujob.agent.setup", "devices.py") or b"")
        remove_file(result)
        first = self._plan["argv"][0]
        python = first if os.path.basename(first).startswith("python") else "python3"
        argv = [python, script, mode, result, *arguments]
        code = run_before_program(self._attempt, argv, b"[pre-flight] ", patience)
        return code, read_json(result)

    def _describe_place(self) -> str:
        """Return the program's environment, in words."""
        order = self._plan.get("environment")
        if not order or not self._attempt.runtime.key:
            return "in the host's own Python"
        return "in the environment of %s" % (order.get("file") or order.get("image"))

    def _seconds_left(self) -> float:
        return self._started + float(self._order["seconds"]) - time.monotonic()

    def _note(self, check: str, text: str) -> None:
        self._attempt.log.note("pre-flight: %s: %s" % (check, text))


class BadDevice(Failure):
    """A device of this or another host gave a wrong answer. `device` is empty if it is unknown."""

    def __init__(self, text: str, host: int, device: str) -> None:
        super().__init__(text, "BAD_HOST")
        host_to_blame, text = host if device else None, text[:MAX_VERDICT_TEXT]
        self.verdict = VerdictDocument(
            step=None, host=host_to_blame, device=device, blame="device", text=text
        )


def find_difference(messages: List[Record]) -> str:
    """Return a sentence on a host with other versions or code than most hosts; empty: all are equal."""
    for name in (*VERSIONS, "code"):
        values = [_value_of(message, name) for message in messages]
        (usual, count), *others = collections.Counter(values).most_common()
        if others:
            if count * 2 == len(values):  # no majority: host 0 is the standard
                usual = values[0]
            odd = next(i for i, value in enumerate(values) if value != usual)
            text = "host %d has %s %s, and %s is expected"
            return text % (messages[odd]["host"], name, values[odd], usual)
    return ""


def _value_of(message: Record, name: str) -> str:
    if name == "code":
        return " ".join(message.get("bundles") or []) or "none"
    versions: Record = message.get("versions") or {}
    version = str(versions.get(name) or "none")
    # packages are compiled for a minor version of Python, such as 3.11
    return ".".join(version.split(".")[:2]) if name == "python" else version


# The kept result -----------------------------------------------------------------------------------------------------


BOOT_ID = "/proc/sys/kernel/random/boot_id"
CHECK_LIFETIME = 3600.0  #: seconds for which a check of the devices holds


def key_of(plan: Plan, order: PreflightOrder, facts: Record) -> Record:
    """Return the key of a check: an earlier check with an equal key holds. `facts` are those of `devices.py`."""
    boot = ""
    with contextlib.suppress(OSError), open(BOOT_ID, encoding="ascii") as file:
        boot = file.read().strip()
    hardware = {"slice": order["slice"], "chips": order["chips"], "hosts": order["hosts"]}
    bundles = [os.path.basename(path) for path in plan["bundles"]]
    return {**hardware, "versions": facts.get("versions") or {}, "bundles": bundles, "boot": boot}


def is_fresh(key: Record) -> bool:
    """Return whether a check with this key passed on this host in the last CHECK_LIFETIME seconds."""
    result = read_json(PREFLIGHT)
    at = result.get("at")
    is_recent = isinstance(at, (int, float)) and 0 <= time.time() - at < CHECK_LIFETIME
    return is_recent and result.get("passed") == key


def invalidate() -> None:
    """Drop the kept result, so that the next preflight checks the devices."""
    remove_file(PREFLIGHT)
