"""Mounts buckets as folders, with gcsfuse. `settings` returns its whole configuration.

A mount is noted before it is made, so that a later agent can unmount it. What another program mounted at the same path
from the same bucket is used, and left there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from typing import Any, Dict, List, Optional

from tpujob.agent.base import Failure, Note, Record, read_json, write_json
from tpujob.agent.folders import CACHES, MOUNTS, MOUNTS_LOG, ROOT
from tpujob.agent.processes import give_up, output_of, sudo
from tpujob.protocol import MountOrder

CACHE = os.path.join(CACHES, "gcsfuse")
MOUNTING = 120.0  #: seconds for gcsfuse to mount
INSTALLING = 900.0  #: seconds for apt, most of which may be a wait for another apt
UNMOUNTING = 30.0

#: As root. The wait for the lock is for the upgrades that a VM does by itself after its first boot.
INSTALL = """
set -e
. /etc/os-release
curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg -o /usr/share/keyrings/gcsfuse.asc
echo "deb [signed-by=/usr/share/keyrings/gcsfuse.asc] https://packages.cloud.google.com/apt \
gcsfuse-$VERSION_CODENAME main" > /etc/apt/sources.list.d/gcsfuse.list
for i in 1 2 3 4 5 6 7 8 9 10; do apt-get update && break; sleep 15; done
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y gcsfuse
"""


def settings(mount: MountOrder, cache: str) -> Record:
    """The configuration file of gcsfuse, whose YAML is also JSON. `cache`: a folder of this mount's own."""
    found: Dict[str, Any] = {
        "implicit-dirs": True,  # folders that were never made as such, which is most of them
        "file-system": {"uid": os.getuid(), "gid": os.getgid()},
        "logging": {"format": "text", "severity": "warning"},
    }
    if mount.get("only_dir"):
        found["only-dir"] = mount["only_dir"]
    limits = mount.get("cache")
    if limits:
        found["cache-dir"] = cache
        found["file-cache"] = {
            "max-size-mb": limits["mib"],
            "cache-file-for-range-read": True,  # training reads records in the middle of files
        }
        found["metadata-cache"] = {"ttl-secs": limits["ttl"]}
    return found


def mount_all(mounts: List[MountOrder], note: Note, shared: bool) -> None:
    """Mount every bucket where the plan wants it. `shared`: root may read it too, as docker does. Safe to repeat.
    Raises Failure."""
    wanted = {folder_of(one): one for one in mounts}
    unmount_all(note, besides=wanted)
    for where, one in wanted.items():
        _mount(where, one, note, shared)


def unmount_all(note: Note, besides: Optional[Dict[str, MountOrder]] = None) -> None:
    """Unmount what an agent mounted on this host, except what is wanted exactly as it is."""
    noted = read_json(MOUNTS)
    for where, made in list(noted.items()):
        if (besides or {}).get(where) == made and os.path.exists(where):
            continue  # a path whose gcsfuse has died does not exist
        if where in mounted():
            _unmount(where)
        if where in mounted():
            note("mount: %s cannot be unmounted" % where)
        else:
            del noted[where]
            write_json(MOUNTS, noted)


def folder_of(mount: MountOrder) -> str:
    return os.path.expanduser(str(mount["to"]))


def mounted() -> Dict[str, List[str]]:
    """What is mounted on this host: path -> device and file system; a bucket's device is its name."""
    found: Dict[str, List[str]] = {}
    table = os.environ.get("TPUJOB_MOUNTED") or "/proc/self/mounts"
    with contextlib.suppress(OSError), open(table, encoding="utf-8") as file:
        for line in file:
            device, where, kind = [*line.split(), "", "", ""][:3]
            found[where.replace("\\040", " ")] = [device, kind]
    return found


def _mount(where: str, mount: MountOrder, note: Note, shared: bool) -> None:
    bucket = str(mount["bucket"])[len("gs://") :]
    there = mounted().get(where)
    if there:
        if there[0] != bucket or not there[1].startswith("fuse"):
            raise Failure("%s cannot be mounted: %s is mounted there" % (mount["bucket"], there[0]))
        return note("mount: %s is at %s already" % (mount["bucket"], where))
    gcsfuse = _gcsfuse(note)
    _folder(where)
    write_json(MOUNTS, dict(read_json(MOUNTS), **{where: mount}))
    own = hashlib.sha256(where.encode()).hexdigest()[:16]
    cache, file = os.path.join(CACHE, own), os.path.join(ROOT, "gcsfuse-%s.json" % own)
    os.makedirs(cache, mode=0o700, exist_ok=True)
    write_json(file, settings(mount, cache))
    options = ["-o", "ro"] if mount.get("read_only") else []
    if shared:
        output_of(sudo(["sh", "-c", "echo user_allow_other >> /etc/fuse.conf"]), 20)
        options += ["-o", "allow_other"]
    began = time.monotonic()
    output = _run([gcsfuse, "--config-file", file, *options, bucket, where], MOUNTING, note)
    if where not in mounted():
        raise Failure("%s cannot be mounted at %s: %s" % (mount["bucket"], where, output))
    took = time.monotonic() - began
    return note("mount: %s is at %s after %.1f s" % (mount["bucket"], where, took))


def _folder(where: str) -> None:
    """Make an empty folder that belongs to this user."""
    try:
        os.makedirs(where, exist_ok=True)
    except OSError as error:
        output_of(sudo(["mkdir", "-p", where]), 20)
        output_of(sudo(["chown", str(os.getuid()), where]), 20)
        if not os.path.isdir(where):
            raise Failure("cannot make %s to mount a bucket at: %s" % (where, error)) from error
    if os.listdir(where):
        raise Failure("%s holds files, which a mount would hide; mount elsewhere" % where)


def _gcsfuse(note: Note) -> str:
    found = shutil.which("gcsfuse")
    if found:
        return found
    as_root = ["bash", "-c", INSTALL] if os.geteuid() == 0 else sudo(["bash", "-c", INSTALL])
    if not as_root:
        why = "this user may not install it by sudo"
    elif not shutil.which("apt-get"):
        why = "there is no apt to install it with"
    else:
        note("mount: installing gcsfuse")
        why = _run(as_root, INSTALLING, note)
    found = shutil.which("gcsfuse")
    if not found:
        raise Failure("gcsfuse is not on this host: %s; install it in a start-up script" % why)
    return found


def _unmount(where: str) -> None:
    """Normally, else lazily: what still reads from it keeps its open files."""
    tool = next((name for name in ("fusermount3", "fusermount") if shutil.which(name)), "umount")
    flags = ["-u"] if tool != "umount" else []
    output_of([tool, *flags, where], UNMOUNTING)
    if where in mounted():
        output_of([tool, *flags, "-z" if flags else "-l", where], UNMOUNTING)


def _run(argv: List[str], patience: float, note: Note) -> str:
    """Run a command with its output in the log; returns the last line of it. The mount that it leaves behind is no part
    of the attempt. Raises nothing."""
    try:
        with open(MOUNTS_LOG, "wb") as file:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        try:
            end = "exit code %d" % child.wait(patience)
        except subprocess.TimeoutExpired:
            give_up(child)
            end = "no end within %.0f s" % patience
    except OSError as error:
        end = str(error)
    with open(MOUNTS_LOG, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    for line in lines[-40:]:
        note("mount: %s" % line[:500])
    return "%s; %s" % (lines[-1][:200], end) if lines else end
