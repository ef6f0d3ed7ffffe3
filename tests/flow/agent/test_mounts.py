"""Mounted buckets. The real gcsfuse needs the kernel's FUSE and Google Cloud, which tests lack: a stand-in records its
command lines, and keeps a table of mounts that the agent reads in place of the kernel's.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_host import Host

GCSFUSE = """\
#!/bin/sh
echo "$*" >> "$TOLD"
cp "$2" "$TOLD.config"
for word; do before=$bucket; bucket=$place; place=$word; done
[ -e "$TOLD.refuse" ] && { echo "bucket $bucket: 403 denied"; exit 1; }
echo "$bucket $place fuse.gcsfuse ro 0 0" >> "$TPUJOB_MOUNTED"
"""
FUSERMOUNT = """\
#!/bin/sh
echo "umount $*" >> "$TOLD"
for word; do place=$word; done
grep -v " $place " "$TPUJOB_MOUNTED" > "$TPUJOB_MOUNTED.new"
mv "$TPUJOB_MOUNTED.new" "$TPUJOB_MOUNTED"
"""


@pytest.fixture
def log(host: Host) -> Path:
    """Return the file with the stand-in's command lines."""
    host.tools({"gcsfuse": GCSFUSE, "fusermount3": FUSERMOUNT})
    log = host.home / "told"
    (host.home / "mounted").write_text("proc /proc proc rw 0 0\n")
    host.env.update(TOLD=str(log), TPUJOB_MOUNTED=str(host.home / "mounted"))
    return log


def data(**changes: Any) -> list[dict[str, Any]]:
    """Return the plan's order for one mount."""
    plain = {"bucket": "gs://lab-data", "to": "~/data", "read_only": True, "only_dir": None}
    return [{**plain, "cache": None, **changes}]


def notes(host: Host, attempt: int = 1) -> list[str]:
    mark = "[tpujob] mount: "
    return [line[len(mark) :] for line in host.bucket.log(attempt) if line.startswith(mark)]


def test_a_bucket_is_there_before_set_up_and_gone_after_the_program(host: Host, log: Path) -> None:
    mount = data(only_dir="c4", cache={"mib": 51200, "ttl": 3600})
    see = "grep -c lab-data $TPUJOB_MOUNTED; test -d ~/data && echo folder"
    report = host.run(see, mounts=mount, setup=see)
    assert report["exit_code"] == 0, host.bucket.log()
    assert [line for line in host.bucket.log() if not line.startswith("[tpujob]")] == [
        "[setup] 1",
        "[setup] folder",
        "1",
        "folder",
    ]
    made, gone = log.read_text().splitlines()
    place = host.home / "data"
    assert made.startswith(f"--config-file {host.home}/.tpujob/gcsfuse-")
    assert made.endswith(f".json -o ro lab-data {place}")
    assert gone == f"umount -u {place}"
    config = json.loads(Path(f"{log}.config").read_text())
    assert (config["only-dir"], config["enable-hns"]) == ("c4", False)
    assert config["file-cache"]["max-size-mb"] == 51200
    assert config["metadata-cache"] == {"ttl-secs": 3600}
    assert config["cache-dir"].startswith(f"{host.home}/.tpujob/cache/gcsfuse/")
    assert config["implicit-dirs"] is True


def test_a_mount_without_a_cache_keeps_nothing_and_may_be_writable(host: Host, log: Path) -> None:
    host.run("true", mounts=data(read_only=False))
    config = json.loads(Path(f"{log}.config").read_text())
    assert {"cache-dir", "file-cache", "only-dir", "enable-hns"}.isdisjoint(config)
    assert " -o ro " not in log.read_text()


def test_mounts_of_a_dead_agent_are_removed_before_the_next_attempt(host: Host, log: Path) -> None:
    """A killed agent leaves its mount and its record."""
    mount = {**data()[0], "to": "~/old"}
    (host.home / ".tpujob").mkdir(exist_ok=True)
    old = host.home / "old"
    (host.home / ".tpujob" / "mounts.json").write_text(json.dumps({str(old): mount}))
    with (host.home / "mounted").open("a") as table:
        table.write(f"lab-data {old} fuse.gcsfuse rw 0 0\n")
    host.run("true")
    assert log.read_text() == f"umount -u {old}\n"
    assert json.loads((host.home / ".tpujob" / "mounts.json").read_text()) == {}


def test_a_mount_made_by_somebody_else_is_used_and_left_in_place(host: Host, log: Path) -> None:
    place = host.home / "data"
    place.mkdir()
    with (host.home / "mounted").open("a") as table:
        table.write(f"lab-data {place} fuse.gcsfuse rw 0 0\n")
    assert host.run("true", mounts=data())["exit_code"] == 0
    assert notes(host) == [f"gs://lab-data is at {place} already"]
    assert not log.exists()
    report = host.run("echo never", mounts=data(bucket="gs://other"), attempt=2)
    assert report["error"] == "gs://other cannot be mounted: lab-data is mounted there"


def test_what_keeps_a_mount_from_being_made_is_the_error(host: Host, log: Path) -> None:
    folder = host.home / "data"
    folder.mkdir()
    (folder / "mine").touch()
    report = host.run("echo never", mounts=data())
    assert report["cause"] == "SETUP"
    assert report["error"].endswith("holds files, which a mount would hide; mount elsewhere")
    assert not log.exists()
    (folder / "mine").unlink()
    Path(f"{log}.refuse").touch()
    report = host.run("echo never", mounts=data(), attempt=2)
    error = f"gs://lab-data cannot be mounted at {folder}: bucket lab-data: 403 denied; exit code 1"
    assert (report["cause"], report["error"]) == ("SETUP", error)
    assert notes(host, 2)[0] == "bucket lab-data: 403 denied"


def test_a_host_that_cannot_install_gcsfuse_fails_with_that_reason(host: Host, log: Path) -> None:
    """apt is a stand-in, too: no test changes this machine."""
    refused = "#!/bin/sh\necho refused here\nexit 1\n"
    tools = host.tools(dict.fromkeys(("curl", "apt-get", "sudo"), refused))
    (tools / "gcsfuse").unlink()
    report = host.run("echo never", mounts=data())
    assert report["cause"] == "SETUP"
    assert report["error"].startswith("gcsfuse is not on this host: ")
    assert report["error"].endswith("; install it in a start-up script")
