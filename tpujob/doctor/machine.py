"""The machine that runs the command: its clock, its software, and what the local stack needs of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpujob.doctor.findings import Finding, NotSeen, fail, listed, ok, unknown, warn
from tpujob.errors import BackendGone, TpujobError, Transient

PYTHON = (3, 11)
#: seconds; Google refuses signed requests that are off by more than some minutes, and ages are read off this clock
CLOCK_OFF, CLOCK_FAR_OFF = 10.0, 240.0
#: bytes free where the state is: logs and checkpoints of a demo take less; below the first nothing can be kept
DISK_LOW, DISK_EMPTY = 5 * 10**9, 200 * 10**6

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9][0-9.]*)")


@dataclass(frozen=True, slots=True)
class Software:
    python: tuple[int, int, int]
    requirements: Sequence[str]  #: of tpujob, as its package states them: `google-cloud-tpu>=1.28`
    installed: Mapping[str, str]  #: versions, by the names in the requirements


@dataclass(frozen=True, slots=True)
class Laptop:
    """What the stack on this machine needs of it. An empty text: nothing is wrong there."""

    loopback: str  #: why the loopback addresses of the hosts cannot be used
    disk_free: int  #: bytes, where the state is
    state: str  #: the folder
    state_open: bool  #: other users can read it
    #: the folder belongs to another user
    state_foreign: bool
    ssh: str  #: where the program is; empty: there is none
    running: Mapping[str, bool]  #: processes of the local stack


def check_clock(ahead_s: float) -> Finding:
    """Check the clock. `ahead_s`: of this machine, against the time in Google's answers, to the second."""
    off = abs(ahead_s)
    text = f"{off:.0f} s {'ahead of' if ahead_s > 0 else 'behind'} Google's"
    if off >= CLOCK_FAR_OFF:
        return fail(f"{text}: signed requests are refused", "sudo timedatectl set-ntp true")
    if off >= CLOCK_OFF:
        return warn(text, "sudo timedatectl set-ntp true")
    return ok(f"within {CLOCK_OFF:.0f} s of Google's")


def check_python(seen: Software) -> Finding:
    version = ".".join(map(str, seen.python))
    if seen.python[:2] < PYTHON:
        needed = ".".join(map(str, PYTHON))
        return fail(f"{version} is too old", f"install Python {needed} or later")
    return ok(version)


def check_packages(seen: Software) -> Finding:
    """Check that the requirements of tpujob are installed, and new enough."""
    if not seen.requirements:
        why = NotSeen("tpujob runs from a folder in which it is not installed", "pip install -e .")
        return unknown(why)
    wanted = [found.groups() for one in seen.requirements if (found := _REQUIREMENT.match(one))]
    missing = [package for package, _ in wanted if package not in seen.installed]
    old = [
        f"{package} {seen.installed[package]} is older than {least}"
        for package, least in wanted
        if package in seen.installed and _version(seen.installed[package]) < _version(least)
    ]
    if missing or old:
        problems = [*(f"{package} is missing" for package in missing), *old]
        return fail(listed(problems), "pip install --upgrade tpujob")
    shown = [p for p, _ in wanted if p.startswith("google-cloud-")]
    return ok(listed(f"{package} {seen.installed[package]}" for package in shown))


def check_backend(url: str, trouble: TpujobError | None) -> Finding:
    """Check a deployed backend. `trouble`: the error of the request to it."""
    if trouble is None:
        return ok(f"{url} answers, and lets you in")
    cure = trouble.hint or f"tpujob use {url}"
    if isinstance(trouble, Transient | BackendGone):
        return unknown(NotSeen(trouble.message, cure))
    return fail(trouble.message, cure)


def check_laptop(seen: Laptop) -> list[Finding]:
    """Return a finding for each thing that the local stack needs."""
    return [
        _loopback(seen).named("loopback"),
        _disk(seen).named("disk"),
        _state(seen).named("state"),
        _ssh(seen).named("SSH"),
        _stack(seen).named("local stack"),
    ]


def _loopback(seen: Laptop) -> Finding:
    if seen.loopback:
        cure = "use Linux, where all of 127.0.0.0/8 is loopback, or a context: `tpujob init`"
        return fail(seen.loopback, cure)
    return ok("every emulated host can have an address of its own")


def _disk(seen: Laptop) -> Finding:
    text = f"{seen.disk_free / 1e9:.1f} GB free for {seen.state}"
    cure = "tpujob list --json, then `tpujob clean JOB --checkpoints` for what is not needed"
    if seen.disk_free < DISK_EMPTY:
        return fail(text, cure)
    return warn(text, cure) if seen.disk_free < DISK_LOW else ok(text)


def _state(seen: Laptop) -> Finding:
    if seen.state_foreign:
        what = f"{seen.state} belongs to another user"
        return fail(what, "set TPUJOB_STATE to a folder of your own")
    if seen.state_open:
        return fail(f"other users can read {seen.state}", f"chmod 700 '{seen.state}'")
    return ok(f"{seen.state}, readable by you alone")


def _ssh(seen: Laptop) -> Finding:
    if not seen.ssh:
        cure = "sudo apt-get install openssh-client"
        return warn("there is no ssh program, so `tpujob ssh` does not work", cure)
    return ok(seen.ssh)


def _stack(seen: Laptop) -> Finding:
    down = [name for name, up in seen.running.items() if not up]
    if not down:
        return ok(f"{listed(seen.running)} run")
    what = f"not running: {listed(down)}; any command that needs them starts them"
    all_down = len(down) == len(seen.running)
    return ok(what) if all_down else warn(what, "tpujob up")


def _version(text: str) -> tuple[int, ...]:
    """Numbers alone; `1.2.0rc1` is `1.2.0`."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", text)[0]))
