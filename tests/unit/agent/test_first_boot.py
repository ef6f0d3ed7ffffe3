"""What of a host differs from what it was like before its first job, on a TPU VM with systemd."""

from collections import Counter

import pytest

from tpujob.agent.setup import first_boot

#: a few facts of a TPU VM when its first agent arrives
BEFORE = [
    "boot\tb1",
    "mount\t/\t/dev/root\text4",
    "mount\t/snap/core20/1\t/dev/loop0\tsquashfs",
    "mount\t/dev/shm\ttmpfs\ttmpfs",
    "disk\t/sys/block/sda\t209715200",
    "process\t1\t2",
    "process\t700\t900",
    "process\t950\t1100",
    *(f"unit\t{name}.service" for name in ("cron", "ssh", "chrony", "logrotate", "getty@")),
    "unit\tinit.scope",
    "unit\tdocker-11aa.scope",
    "file\t/etc/passwd\t-rw-r--r-- 0 0 ",
    "file\t/etc/passwd\t0a0a",
    "file\t/etc/apt/apt.conf\t-rw-r--r-- 0 0 ",
    "file\t/etc/apt/apt.conf\t0b0b",
    "packaged\t/etc/apt/apt.conf\t0b0b",
    "name\t/run/systemd",
    "name\t/var/log/syslog",
    "name\t/var/lib/fwupd",
    "empty\t/var/lib/fwupd",
]


def facts(*added: str, without: str = "\0") -> "Counter[str]":
    return Counter([*(line for line in BEFORE if without not in line), *added])


@pytest.mark.parametrize(
    ("process", "cgroup", "is_of_system"),
    [
        # the system's
        ((1, "2", "systemd"), "0::/init.scope", True),
        ((700, "900", "cron"), "0::/system.slice/cron.service", True),
        ((4000, "77", "chronyd"), "0::/system.slice/chrony.service", True),  # was started again
        ((4000, "77", "cron"), "0::/system.slice/cron.service", True),
        ((4000, "77", "sshd"), "0::/system.slice/ssh.service", True),
        ((4000, "77", "logrotate"), "0::/system.slice/logrotate.service", True),
        ((4000, "77", "agetty"), "0::/system.slice/system-getty.slice/getty@tty1.service", True),
        ((4000, "77", "healthd"), "0::/system.slice/docker-11aa.scope", True),
        ((4000, "77", "chronyd"), "12:pids:/x\n1:name=systemd:/system.slice/chrony.service\n0::/", True),
        ((700, "900", "chronyd"), "0::/", True),
        # users'
        ((4000, "77", "python3"), "0::/user.slice/user-1001.slice/session-4.scope", False),
        ((950, "1100", "python3"), "0::/user.slice/user-1001.slice/session-2.scope", False),
        ((4000, "77", "python3"), "0::/user.slice/user-1001.slice/user@1001.service/app.slice/a.service", False),
        ((4000, "77", "python3"), "0::/user.slice/user-0.slice/session-c1.scope", False),
        ((4000, "77", "python3"), "0::/system.slice/run-r0f.service", False),
        ((4000, "77", "python3"), "0::/system.slice/run-r0f.scope", False),
        ((4000, "77", "python3"), "0::/system.slice/docker-22bb.scope", False),
        ((4000, "77", "python3"), "0::/docker/22bb", False),
        ((4000, "77", "python3"), "0::/machine.slice/machine-x.scope", False),
        ((4000, "77", "python3"), "0::/system.slice/cron.service", False),
        ((4000, "77", "bash"), "0::/system.slice/ssh.service", False),
        ((700, "901", "python3"), "0::/", False),  # the number was used again
        ((4000, "77", "python3"), "", False),
    ],
)  # fmt: skip
def test_a_process_is_of_the_system_by_its_service_or_its_start(
    process: tuple[int, str, str], cgroup: str, is_of_system: bool
) -> None:
    assert first_boot.is_of_system(*process, cgroup, facts()) is is_of_system


@pytest.mark.parametrize(
    ("now", "texts"),
    [
        (facts(), []),
        (facts("boot\tb2", without="boot"), ["it was restarted"] * 2),
        # what the system changes
        (facts("mount\t/snap/core20/2\t/dev/loop1\tsquashfs", without="/snap/"), []),
        (facts("mount\t/run/user/1001\ttmpfs\ttmpfs"), []),
        (facts("disk\t/sys/block/loop1\t/var/lib/snapd/snaps/core20_2.snap"), []),
        (facts("file\t/etc/ld.so.cache\t0c0c"), []),
        (facts("file\t/etc/systemd/system/multi-user.target.wants/snap-core20-2.mount\tl"), []),
        (facts("file\t/etc/apt/apt.conf\t0d0d", "packaged\t/etc/apt/apt.conf\t0d0d", without="0b0b"), []),
        (facts("file\t/etc/new.conf\t-rw-", "file\t/etc/new.conf\t0e", "packaged\t/etc/new.conf\t0e"), []),
        (facts("name\t/var/log/syslog.1", "name\t/var/log/syslog.2.gz", "name\t/var/log/syslog-20261128"), []),
        (facts("name\t/run/motd.dynamic", "name\t/run/reboot-required.pkgs"), []),
        (facts("name\t/mnt/ram", "empty\t/mnt/ram"), []),
        (facts(without="empty"), []),
        (facts("process\t5\t6", "unit\tx.service"), []),
        # what users change
        (facts("mount\t/snap/mine\ttmpfs\ttmpfs"), ["/snap/mine is mounted"]),
        (facts("mount\t/sys/fs/mine\ttmpfs\ttmpfs"), ["/sys/fs/mine is mounted"]),
        (facts("mount\t/dev/shm\ttmpfs\ttmpfs"), ["/dev/shm is mounted"]),  # a second time
        (facts(without="/dev/shm"), ["/dev/shm is not mounted"]),
        (facts("disk\t/sys/block/zram0\t8388608"), ["the disk /sys/block/zram0"]),
        (facts("disk\t/sys/block/loop1\t/home/tpujob/image (deleted)"), ["the disk /sys/block/loop1"]),
        (facts("ipc\t0x0000002a\t3"), ["shared memory, a queue or semaphores with the key 0x0000002a"]),
        (facts("file\t/etc/passwd\t0f0f", without="0a0a"), ["/etc/passwd"] * 2),
        (facts("file\t/etc/apt/apt.conf\t0f0f", without="file\t/etc/apt/apt.conf\t0b0b"), ["/etc/apt/apt.conf"] * 2),
        (facts(without="/etc/passwd\t0a0a"), ["/etc/passwd"]),
        (facts("file\t/etc/systemd/system/mine.service\t0f"), ["/etc/systemd/system/mine.service"]),
        (facts("name\t/run/mine"), ["/run/mine"]),
        (facts("name\t/var/log/train.log"), ["/var/log/train.log"]),
    ],
)  # fmt: skip
def test_differences_are_what_the_system_did_not_change(
    now: "Counter[str]", texts: list[str]
) -> None:
    assert first_boot.differences(facts(), now) == texts


def test_mounts_are_removed_unless_they_hide_a_disk_that_is_new_here() -> None:
    now = facts(
        "mount\t/var/a\\040b\ttmpfs\ttmpfs",
        "mount\t/var/a\\040b/c\tmy-bucket\tfuse.gcsfuse",
        "mount\t/data\t/dev/root\text4",
        "mount\t/mnt/disk\t/dev/sdb\text4",
        "mount\t/run/user/1001\ttmpfs\ttmpfs",
        "mount\t/dev/shm\ttmpfs\ttmpfs",
    )
    paths = ["/data", "/var/a b/c", "/var/a b", "/dev/shm"]  # an inner one before that around it
    assert first_boot.removable_mounts(facts(), now) == paths
