"""Fixed ports that programs of other emulated hosts use: emulated hosts share the ports of one machine.

A program that listens on every address is reached by the programs of each slice that use the same port, and a second
one may listen there, too (SO_REUSEPORT). Every machine of the cloud has its own ports, and nothing is searched there.
"""

from __future__ import annotations

import contextlib
import os
from typing import Dict, List, Set

from tpujob.agent.base import Note
from tpujob.agent.processes import EMULATED_HOST, read_proc
from tpujob.protocol.ports import SLICE_PORTS

_VARIABLE = EMULATED_HOST.encode() + b"="
_LISTENS = "0A"  #: a state in /proc/net/tcp


def warn_of_shared_ports(note: Note) -> None:
    """Write into the log on which fixed ports a program here would meet those of other jobs, if there are any."""
    ports = ports_of_other_slices()
    if ports:
        text = "programs of other jobs listen on port %s, and emulated hosts share one machine's ports: a program that "
        text += "takes the same port here meets them; TPUJOB_COORDINATOR has a port that is this job's own"
        note(text % ", ".join(map(str, ports)))


def ports_of_other_slices() -> List[int]:
    """Return the fixed ports on which programs of other emulated slices listen on every address."""
    own = _slice_of(os.fsencode(os.environ.get(EMULATED_HOST, "")))
    listeners = _listeners_on_fixed_ports() if own else {}
    ports: Set[int] = set()
    for pid in os.listdir("/proc") if listeners else ():
        if pid.isdigit() and _slice_of(_value_in(read_proc(int(pid), "environ"))) not in (b"", own):
            ports.update(listeners[s] for s in _sockets(pid) if s in listeners)
    return sorted(ports)


def _value_in(environ: bytes) -> bytes:
    values = (v[len(_VARIABLE) :] for v in environ.split(b"\0") if v.startswith(_VARIABLE))
    return next(values, b"")


def _slice_of(host: bytes) -> bytes:
    """Return `FARM/SLICE` of `FARM/SLICE/HOST/`."""
    return host.rstrip(b"/").rpartition(b"/")[0]


def _listeners_on_fixed_ports() -> Dict[str, int]:
    """Return the sockets that listen on every address, with their ports. Left out are the ports that Linux chooses, and
    those that each slice has for itself."""
    chosen = int((_lines("sys/net/ipv4/ip_local_port_range") or ["0"])[0].split()[0])
    listeners: Dict[str, int] = {}
    for line in _lines("net/tcp")[1:] + _lines("net/tcp6")[1:]:
        _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
        address, _, port = local.partition(":")
        if state == _LISTENS and not address.strip("0"):
            listeners["socket:[%s]" % inode] = int(port, 16)
    return {s: p for s, p in listeners.items() if p < chosen and p not in SLICE_PORTS}


def _lines(name: str) -> List[str]:
    """Return the lines of a file of the kernel; none where it has no such file, as without IPv6."""
    with contextlib.suppress(OSError), open("/proc/" + name, encoding="ascii") as file:
        return file.read().splitlines()
    return []


def _sockets(pid: str) -> List[str]:
    """Return what the open files of a process are; nothing of a process that has ended or is another user's."""
    found: List[str] = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/%s/fd" % pid):
            with contextlib.suppress(OSError):
                found.append(os.readlink("/proc/%s/fd/%s" % (pid, name)))
    return found
