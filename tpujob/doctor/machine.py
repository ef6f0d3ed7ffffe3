"""The machine that runs the command: its clock, its software, and the needs of the local stack."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpujob.doctor.findings import Finding, NotSeen, fail, listed, ok, unknown, warn
from tpujob.errors import BackendGone, TpujobError, Transient

PYTHON = (3, 11)
#: seconds of error from which on the clock is a warning, as ages are measured by it, or a failure, as Google refuses
#: signed requests that are off by some minutes
CLOCK_OFF, CLOCK_FAR_OFF = 10.0, 240.0
#: free bytes below which the disk is a warning, as a demo may fill it, or a failure
DISK_LOW, DISK_EMPTY = 5 * 10**9, 200 * 10**6

#: name and least version, also of `typer<0.29,>=0.28`
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^>]*>=\s*([0-9][0-9.]*)")


@dataclass(frozen=True, slots=True)
class Software:
    python: tuple[int, int, int]
    requirements: Sequence[str]  #: tpujob's requirements, such as `google-cloud-tpu>=1.28`
    installed: Mapping[str, str]  #: name of a package -> its version


@dataclass(frozen=True, slots=True)
class Laptop:
    """The facts about this machine that the local stack depends on."""

    loopback: str  #: why hosts cannot have loopback addresses; empty: they can
    disk_free: int  #: free bytes on the disk of the state folder
    state: str  #: path of the state folder
    state_open: bool  #: whether other users can read the state folder
    state_foreign: bool  #: whether the state folder belongs to another user
    ssh: str  #: path of the ssh program; empty: there is none
    running: Mapping[str, bool]  #: process of the local stack -> whether it runs


def check_clock(ahead_s: float) -> Finding:
    """Check the clock. `ahead_s`: seconds by which this machine's clock is ahead of the time in Google's answers."""
    off = abs(ahead_s)
    text = f"{off:.0f} s {'ahead of' if ahead_s > 0 else 'behind'} Google's"
    if off >= CLOCK_FAR_OFF:
        return fail(f"{text}: signed requests are refused", "sudo timedatectl set-ntp true")
    if off >= CLOCK_OFF:
        return warn(text, "sudo timedatectl set-ntp true")
    return ok(f"within {CLOCK_OFF:.0f} s of Google's")


def check_python(software: Software) -> Finding:
    version = ".".join(map(str, software.python))
    if software.python[:2] < PYTHON:
        needed = ".".join(map(str, PYTHON))
        return fail(f"{version} is too old", f"install Python {needed} or later")
    return ok(version)


def check_packages(software: Software) -> Finding:
    """Check that the requirements of tpujob are installed, and new enough."""
    if not software.requirements:
        why = "tpujob runs from a folder in which it is not installed"
        return unknown(NotSeen(why, "python3 -m pip install -e ."))
    missing: dict[str, str] = {}
    old: dict[str, str] = {}
    clients: list[str] = []
    for match in filter(None, map(_REQUIREMENT.match, software.requirements)):
        package, least = match.groups()
        version = software.installed.get(package)
        if version is None:
            missing[match[0]] = f"{package} is missing"
        elif _version_numbers(version) < _version_numbers(least):
            old[match[0]] = f"{package} {version} is older than {least}"
        elif package.startswith("google-cloud-"):
            clients.append(f"{package} {version}")
    if missing or old:
        wrong = missing | old
        return fail(listed(list(wrong.values())), f"python3 -m pip install {shlex.join(wrong)}")
    return ok(listed(clients))


def check_backend(url: str, error: TpujobError | None) -> Finding:
    """Check a deployed backend. `error`: the error of a request to the backend."""
    if error is None:
        return ok(f"{url} answers, and lets you in")
    cure = error.hint or f"tpujob use {url}"
    if isinstance(error, Transient | BackendGone):
        return unknown(NotSeen(error.message, cure))
    return fail(error.message, cure)


def check_laptop(laptop: Laptop) -> list[Finding]:
    """Return a finding for each thing that the local stack needs."""
    return [
        _check_loopback(laptop).named("loopback"),
        _check_disk(laptop).named("disk"),
        _check_state(laptop).named("state"),
        _check_ssh(laptop).named("SSH"),
        _check_stack(laptop).named("local stack"),
    ]


def _check_loopback(laptop: Laptop) -> Finding:
    if laptop.loopback:
        cure = "use Linux, where all of 127.0.0.0/8 is loopback, or a context: `tpujob init`"
        return fail(laptop.loopback, cure)
    return ok("every emulated host can have an address of its own")


def _check_disk(laptop: Laptop) -> Finding:
    text = f"{laptop.disk_free / 1e9:.1f} GB free for {laptop.state}"
    cure = "tpujob list --json, then `tpujob clean JOB --checkpoints` for what is not needed"
    if laptop.disk_free < DISK_EMPTY:
        return fail(text, cure)
    return warn(text, cure) if laptop.disk_free < DISK_LOW else ok(text)


def _check_state(laptop: Laptop) -> Finding:
    if laptop.state_foreign:
        text = f"{laptop.state} belongs to another user"
        return fail(text, "set TPUJOB_STATE to a folder of your own")
    if laptop.state_open:
        return fail(f"other users can read {laptop.state}", f"chmod 700 '{laptop.state}'")
    return ok(f"{laptop.state}, readable by you alone")


def _check_ssh(laptop: Laptop) -> Finding:
    if not laptop.ssh:
        cure = "sudo apt-get install openssh-client"
        return warn("there is no ssh program, so `tpujob ssh` does not work", cure)
    return ok(laptop.ssh)


def _check_stack(laptop: Laptop) -> Finding:
    down = [name for name, up in laptop.running.items() if not up]
    if not down:
        return ok(f"{listed(laptop.running)} run")
    text = f"not running: {listed(down)}; any command that needs them starts them"
    all_down = len(down) == len(laptop.running)
    return ok(text) if all_down else warn(text, "tpujob up")


def _version_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version; `1.2.0rc1` is `1.2.0`."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", text)[0]))
