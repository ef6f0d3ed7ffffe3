r"""Compares a real host with its record: what it was like when the first agent arrived, before the first program.

The record is a file of root with a line for each fact: `KIND \t PATH \t DETAILS`. It is made once in the life of a
machine. It stops accidents: a program that is root can change it.
"""

from __future__ import annotations

import collections
import re
from typing import Callable, Counter, List, Optional

from tpujob.agent.base import Failure

Run = Callable[[List[str]], Optional[bytes]]  #: runs a command as root; None: it failed
Facts = Counter[str]

FOLDER = "/var/lib/tpujob"
RECORD = FOLDER + "/first-boot"
#: makes the record, but never a second one. $1: FOLDER, $2: FACTS
MAKE = 'set -e; umask 077; mkdir "$1"; cd "$1"; timeout 20 bash -c "$2" > new; mv new first-boot'
#: prints the facts, or fails. `packaged` are the files of /etc as their packages brought them
FACTS = r"""
set -euo pipefail; export LC_ALL=C; cd /; t=$'\t'
sed "s/^/boot$t/" /proc/sys/kernel/random/boot_id
sed -E "s/^([^ ]+) ([^ ]+) ([^ ]+) .*/mount$t\2$t\1$t\3/" /proc/self/mounts
sed -sE "1d; s/^ *([^ ]+) +([^ ]+) .*/ipc$t\1$t\2/" /proc/sysvipc/*
sed -E "s/^([0-9]+) .*\) ([^ ]+ ){19}([^ ]+) .*/process$t\1$t\3/" /proc/[0-9]*/stat 2> /dev/null || :
for disk in $(grep -lsvx 0 /sys/block/*/size); do
    printf 'disk\t%s\t' "${disk%/size}"; cat "${disk%size}loop/backing_file" 2> /dev/null || cat "$disk"
done
if [ -d /run/systemd/system ]; then
    for what in list-unit-files 'list-units --all --plain'; do
        systemctl $what --no-legend --no-pager | sed -E "s/^ *([^ ]+).*/unit$t\1/"
    done
fi
files() { find $(ls -d /etc /var/spool/cron 2> /dev/null) -ignore_readdir_race ! -type d "$@"; }
files -printf 'file\t%p\t%M %U %G %l\n'
files -type f -exec md5sum {} + | sed -E "s/^[\\]?([0-9a-f]+)  (.*)/file$t\2$t\1/"
{ dpkg-query -W -f '${Conffiles}\n' 2> /dev/null || :; } |
    sed -nE "s/^ (.*) ([0-9a-f]{32}).*/packaged$t\1$t\2/p"
find $(ls -d /run /var /var/{cache,lib,log,spool} 2> /dev/null) -ignore_readdir_race \
    -mindepth 1 -maxdepth 1 -printf 'name\t%p\n' -empty -printf 'empty\t%p\n'
"""

#: services that start programs of users, and these services' own processes
STARTERS = {"cron.service", "atd.service", "ssh.service", "sshd.service"}
STARTING = {"cron", "atd", "sshd"}
#: what Ubuntu changes while it runs, and tpujob by itself: files of /etc, names in /run and /var
REWRITTEN = re.compile(
    r"/etc/(\.pwd\.lock|adjtime|ca-certificates\.conf|fuse\.conf|ld\.so\.cache|mtab)"
    r"|/etc/apt/sources\.list\.d/gcsfuse\.list|/etc/(alternatives|ssl/certs|rc[0-6S]\.d)/.*"
    r"|/etc/systemd/system/([^/]+\.wants/)?snap[-.].*|/etc/udev/rules\.d/70-snap\..*"
    r"|/run/(agetty\.reload|apport\.lock|blkid|credentials|crond?\..*|dhclient.*|faillock|lock|log|mount|netns|screen"
    r"|motd\..*|packagekit|reboot-required.*|sshd.*|sudo|udisks2|unattended-upgrades.*|user|utmp|xtables\.lock)"
    r"|/var/(crash|lock|run|tmp|cache/(apparmor|apt|debconf|fontconfig|fwupd.*|ldconfig|man|private|snapd))"
    r"|/var/lib/(AccountsService|apport|command-not-found|fwupd|logrotate|man-db|PackageKit|private|snapd|sudo"
    r"|systemd|ubuntu-.*|unattended-upgrades|update-.*)|/var/spool/(anacron|cron|mail)"
    r"|/var/log/(apport\.log|[bw]tmp|faillog|journal|lastlog|unattended-upgrades|(alternatives|dpkg|kern|auth)\.log)"
)
#: what Ubuntu mounts while it runs
REMOUNTED = re.compile(
    r"/snap/[^\t]+\t/dev/loop\d+\tsquashfs|/run/snapd/ns\t.*|/run/snapd/ns/[^\t]+\tnsfs\t.*"
    r"|/run/user/\d+\ttmpfs\ttmpfs|/run/credentials/systemd-.*|/(proc|sys)/[^\t]+\t[^\t]+\t"
    r"(autofs|binfmt_misc|bpf|configfs|debugfs|fusectl|pstore|tracefs)"
)


def record(run: Run) -> None:
    """Record what this host is like, unless that was tried before."""
    run(["bash", "-c", MAKE, "bash", FOLDER, FACTS])


def read_record(run: Run) -> Facts:
    """Return the record. Raises Failure if there is none."""
    return _parse(run(["cat", RECORD]), "was like before its first job")


def observe(run: Run) -> Facts:
    """Return what this host is like now. Raises Failure if that cannot be found out."""
    return _parse(run(["bash", "-c", FACTS]), "is like")


def _parse(output: Optional[bytes], what: str) -> Facts:
    if not output:
        raise Failure("it is not known what this host %s" % what)
    return collections.Counter(output.decode("utf-8", "surrogateescape").split("\n"))


def is_of_system(pid: int, start: str, command: str, cgroup: str, before: Facts) -> bool:
    """Return whether a process is in the record, or is of a service that is in it. `start`: its start, in ticks since
    boot. `cgroup`: its `/proc/PID/cgroup`. Sessions are of users, whenever they began."""
    match = re.search(r"^(?:0:|\d+:name=systemd):(/.*)$", cgroup, re.M)
    path = match.group(1) if match else "/"
    if path.startswith("/user.slice/"):
        return False
    if "process\t%d\t%s" % (pid, start) in before:
        return True
    unit = next(iter(re.findall(r"[^/]+\.(?:service|scope)(?=/|$)", path)), "")
    if unit in STARTERS and command not in STARTING:
        return False
    return any("unit\t" + name in before for name in (unit, re.sub("@.*(?=[.])", "@", unit)))


def removable_mounts(before: Facts, now: Facts) -> List[str]:
    """Return the paths that were mounted since, the newest first, except those that hide a disk which is new here."""
    disks = {line.split("\t")[2] for line in before if line.startswith("mount\t")}
    paths: List[str] = []
    for line in (now - before).elements():
        kind, _, mount = line.partition("\t")
        if kind == "mount" and not REMOUNTED.fullmatch(mount):
            path, device = mount.split("\t")[:2]
            if device in disks or not device.startswith("/dev/"):
                paths.append(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), path))
    return paths[::-1]


def differences(before: Facts, now: Facts) -> List[str]:
    """Return what differs from the record and is not known to be the system's own change."""
    intact = {line[len("packaged") :] for line in now if line.startswith("packaged\t")}
    intact = {content.split("\t")[1] for content in intact if "file" + content in now}
    texts: List[str] = []
    for line in [*(now - before), *(before - now)]:
        kind, _, text = line.partition("\t")
        path = text.split("\t")[0]
        if kind == "boot":
            texts.append("it was restarted")
        elif kind == "mount" and not REMOUNTED.fullmatch(text):
            texts.append("%s is mounted" % path if line in now else "%s is not mounted" % path)
        elif kind == "disk" and line in now and "\t/var/lib/snapd/snaps/" not in line:
            texts.append("the disk %s" % path)
        elif kind == "ipc" and line in now:
            texts.append("shared memory, a queue or semaphores with the key %s" % path)
        elif kind == "file" and path not in intact and not REWRITTEN.fullmatch(path):
            texts.append(path)
        elif kind == "name" and line in now and not REWRITTEN.fullmatch(path):
            log = re.sub(r"([.-]\d+)?([.]gz)?$", "", path)  # of which this is a rotated part
            if "name\t" + log not in before and "empty\t" + path not in now:
                texts.append(path)
    return texts
