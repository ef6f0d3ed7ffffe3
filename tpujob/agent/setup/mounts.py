"""Mounts buckets as folders, with gcsfuse.

The agent records a mount before it mounts, so that a later agent can unmount. Another program's mount of the same
bucket at the same path is used, and never unmounted.
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
from tpujob.agent.processes import abandon, output_of, sudo
from tpujob.protocol import MountOrder

CACHE = os.path.join(CACHES, "gcsfuse")
MOUNTING = 120.0  #: seconds for gcsfuse to mount
INSTALLING = 900.0  #: seconds for apt, including its wait for another apt
UNMOUNTING = 30.0  #: seconds for one try to unmount

#: a script for root; it waits for the upgrades that a VM does after its first boot
INSTALL = """
set -e
. /etc/os-release
curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg -o /usr/share/keyrings/gcsfuse.asc
echo "deb [signed-by=/usr/share/keyrings/gcsfuse.asc] https://packages.cloud.google.com/apt \
gcsfuse-$VERSION_CODENAME main" > /etc/apt/sources.list.d/gcsfuse.list
for i in 1 2 3 4 5 6 7 8 9 10; do apt-get update && break; sleep 15; done
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y gcsfuse
"""


def gcsfuse_settings(mount: MountOrder, cache: str) -> Record:
    """Return the configuration of gcsfuse: JSON is valid YAML. `cache` is a folder for this mount alone."""
    configuration: Dict[str, Any] = {
        "implicit-dirs": True,  # shows folders without an object of their own, which are the usual ones
        "file-system": {"uid": os.getuid(), "gid": os.getgid()},
        "logging": {"format": "text", "severity": "warning"},
    }
    if mount.get("only_dir"):
        configuration["only-dir"] = mount["only_dir"]
        if mount.get("read_only"):  # else it needs the right to list the whole bucket
            configuration["enable-hns"] = False
    if limits := mount.get("cache"):
        configuration["cache-dir"] = cache
        configuration["file-cache"] = {
            "max-size-mb": limits["mib"],
            "cache-file-for-range-read": True,  # training reads records in the middle of files
        }
        configuration["metadata-cache"] = {"ttl-secs": limits["ttl"]}
    return configuration


def mount_all(mounts: List[MountOrder], note: Note, shared: bool) -> None:
    """Mount the plan's buckets. `shared`: root may read them, too, as Docker needs. Safe to repeat. Raises Failure."""
    orders = {folder_of(mount): mount for mount in mounts}
    unmount_all(note, besides=orders)
    for folder, mount in orders.items():
        _mount(folder, mount, note, shared)


def unmount_all(note: Note, besides: Optional[Dict[str, MountOrder]] = None) -> None:
    """Unmount the buckets that agents have mounted, except working mounts with the order in `besides`, by folder."""
    records = read_json(MOUNTS)
    for folder, mount in list(records.items()):
        if (besides or {}).get(folder) == mount and os.path.exists(folder):
            continue  # a folder whose gcsfuse has died does not exist
        if folder in mounted():
            _unmount(folder)
        if folder in mounted():
            note("mount: %s cannot be unmounted" % folder)
        else:
            del records[folder]
            write_json(MOUNTS, records)


def folder_of(mount: MountOrder) -> str:
    return os.path.expanduser(str(mount["to"]))


def mounted() -> Dict[str, List[str]]:
    """Return device and file system of each mounted path; a bucket's device is its name."""
    mounts: Dict[str, List[str]] = {}
    table = os.environ.get("TPUJOB_MOUNTED") or "/proc/self/mounts"
    with contextlib.suppress(OSError), open(table, encoding="utf-8") as file:
        for line in file:
            device, path, file_system = [*line.split(), "", "", ""][:3]
            mounts[path.replace("\\040", " ")] = [device, file_system]
    return mounts


def _mount(folder: str, mount: MountOrder, note: Note, shared: bool) -> None:
    bucket = str(mount["bucket"])[len("gs://") :]
    if present := mounted().get(folder):
        device, file_system = present
        if device != bucket or not file_system.startswith("fuse"):
            raise Failure("%s cannot be mounted: %s is mounted there" % (mount["bucket"], device))
        return note("mount: %s is at %s already" % (mount["bucket"], folder))
    gcsfuse = _find_or_install_gcsfuse(note)
    _make_folder(folder)
    write_json(MOUNTS, dict(read_json(MOUNTS), **{folder: mount}))
    name = hashlib.sha256(folder.encode()).hexdigest()[:16]
    cache, file = os.path.join(CACHE, name), os.path.join(ROOT, "gcsfuse-%s.json" % name)
    os.makedirs(cache, mode=0o700, exist_ok=True)
    write_json(file, gcsfuse_settings(mount, cache))
    options = ["-o", "ro"] if mount.get("read_only") else []
    if shared:
        output_of(sudo(["sh", "-c", "echo user_allow_other >> /etc/fuse.conf"]), 20)
        options += ["-o", "allow_other"]
    began = time.monotonic()
    output = _run([gcsfuse, "--config-file", file, *options, bucket, folder], MOUNTING, note)
    if folder not in mounted():
        raise Failure("%s cannot be mounted at %s: %s" % (mount["bucket"], folder, output))
    took = time.monotonic() - began
    return note("mount: %s is at %s after %.1f s" % (mount["bucket"], folder, took))


def _make_folder(folder: str) -> None:
    """Create the folder for this user. Raises Failure if it is not empty."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        output_of(sudo(["mkdir", "-p", folder]), 20)
        output_of(sudo(["chown", str(os.getuid()), folder]), 20)
        if not os.path.isdir(folder):
            raise Failure("cannot make %s to mount a bucket at: %s" % (folder, error)) from error
    if os.listdir(folder):
        raise Failure("%s holds files, which a mount would hide; mount elsewhere" % folder)


def _find_or_install_gcsfuse(note: Note) -> str:
    path = shutil.which("gcsfuse")
    if path:
        return path
    as_root = ["bash", "-c", INSTALL] if os.geteuid() == 0 else sudo(["bash", "-c", INSTALL])
    if not as_root:
        reason = "this user may not install it by sudo"
    elif not shutil.which("apt-get"):
        reason = "there is no apt to install it with"
    else:
        note("mount: installing gcsfuse")
        reason = _run(as_root, INSTALLING, note)
    path = shutil.which("gcsfuse")
    if not path:
        raise Failure("gcsfuse is not on this host: %s; install it in a start-up script" % reason)
    return path


def _unmount(folder: str) -> None:
    """Unmount, or lazily if that fails, so that readers keep their open files."""
    tool = next((name for name in ("fusermount3", "fusermount") if shutil.which(name)), "umount")
    flags = ["-u"] if tool != "umount" else []
    output_of([tool, *flags, folder], UNMOUNTING)
    if folder in mounted():
        output_of([tool, *flags, "-z" if flags else "-l", folder], UNMOUNTING)


def _run(argv: List[str], patience: float, note: Note) -> str:
    """Run a command with its output in the log. Return its last line of output and how it ended, or an error. The
    processes that stay, such as gcsfuse, do not carry the attempt's variables."""
    try:
        with open(MOUNTS_LOG, "wb") as file:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        try:
            end = "exit code %d" % child.wait(patience)
        except subprocess.TimeoutExpired:
            abandon(child)
            end = "no end within %.0f s" % patience
    except OSError as error:
        end = str(error)
    with open(MOUNTS_LOG, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    for line in lines[-40:]:
        note("mount: %s" % line[:500])
    return "%s; %s" % (lines[-1][:200], end) if lines else end
