"""The wipe of a real host, on a machine that root makes here: as a TPU VM has it, in namespaces of its own.

Its root is in memory, and it has of this machine only `/usr` and a few files of `/etc`, read-only or as copies. Its
processes and memory end with it.
"""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_host import Bucket, Host, MetadataServer, told_json
from tpujob.adapters.ssh.agent_calls import build_archive
from tpujob.lib import unix_sockets

TOOLS = ("unshare", "pivot_root", "runuser", "sudo", "ipcmk", "/usr/bin/python3")
MISSING = [tool for tool in TOOLS if not shutil.which(tool)]
if os.geteuid() != 0:
    MISSING.append("root")
elif not MISSING:
    probe = ["unshare", "--mount", "--pid", "--ipc", "--fork", "true"]
    MISSING += ["namespaces"] * (subprocess.run(probe, capture_output=True).returncode != 0)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"NOT TESTED: no {', '.join(MISSING)} here")

KEY = "ssh-ed25519 BBBB tpujob"
#: in the machine's first process. $1: an empty folder; $2: what is handed in; the rest are files that it must not see
MACHINE = r"""
set -eu; root=$1 given=$2; shift 2
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root; umask 022
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"; cd "$root"
mkdir -p dev etc home mnt opt proc root run sys/class/dmi/id old var/given usr/local/bin
for path in /usr/*; do
    [ "$path" = /usr/local ] || { mkdir -p ".$path"; mount --bind -o ro "$path" ".$path"; }
done
for path in bin lib lib32 lib64 libx32 sbin; do [ ! -L /$path ] || cp -P /$path .; done
for path in ld.so.cache ld.so.conf ld.so.conf.d nsswitch.conf pam.d security alternatives; do
    [ ! -e /etc/$path ] || cp -a /etc/$path etc
done
cp -r "$given/." var/given
mount -t proc proc proc
for path in null zero full random urandom tty; do touch dev/$path; mount --bind /dev/$path dev/$path; done
for path in dev/shm dev/mqueue run run/lock run/user/1001 tmp var/tmp; do mkdir -p $path; done
chmod 1777 tmp var/tmp
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t mqueue mqueue dev/mqueue; chmod 1777 dev/mqueue
mount -t tmpfs -o mode=1777 tmpfs run/lock
mount -t tmpfs -o mode=700,uid=1001,gid=1001 tmpfs run/user/1001
pivot_root . old; cd /; umount -l /old
for path in "$@"; do [ ! -e "$path" ] || { echo "$path is seen"; exit 9; }; done
[ $$ = 1 ] && [ -z "$(ls /old)" ] || exit 9

# the image, with files of the number that its user will get
printf 'root:x:0:0::/root:/bin/bash\ntpujob:x:1001:1001::/home/tpujob:/bin/bash\n' > /etc/passwd
printf 'root:x:0:\ntpujob:x:1001:\n' > /etc/group
printf 'root:*:19000::::::\ntpujob:*:19000::::::\n' > /etc/shadow; chmod 600 /etc/shadow
printf 'root ALL=(ALL) ALL\ntpujob ALL=(ALL) NOPASSWD: ALL\n' > /etc/sudoers; chmod 440 /etc/sudoers
printf '127.0.0.1 localhost %s\n' "$(uname -n)" > /etc/hosts
echo 'Google Compute Engine' > /sys/class/dmi/id/product_name
printf '#!/bin/sh\n[ "$1" = stop ] && rm "/run/systemd/transient/$3" || printf "cron.service  loaded\\n"' \
    > /usr/local/bin/systemctl
chmod 755 /usr/local/bin/systemctl
mkdir -p /run/systemd/system /run/systemd/transient; echo > /run/systemd/transient/session-1.scope
mkdir /opt/image; echo x > /opt/image/file; chown -R 1001 /opt/image
mkdir -p /root/.docker /root/.ssh; echo x > /root/.docker/config.json; echo x > /root/.bashrc

# the first boot
mkdir -p /etc/ssh /var/log/journal/abc /var/crash /var/lib/apt /home/ubuntu/.ssh /opt/containerd
mkdir -p /var/spool/cron/crontabs /var/lib/docker/image/overlay2/imagedb/content/sha256 /var/lib/systemd/linger
mkdir -p /home/scratch /var/cache /var/lib/containerd; echo '* * * * * root x' > /var/spool/cron/crontabs/ubuntu
touch /etc/ssh/ssh_host_ed25519_key.pub
chmod 1777 /var/crash
boot=$(tr -d - < /proc/sys/kernel/random/boot_id)
mkdir -m 700 /tmp/systemd-private-$boot-chrony.service-x /tmp/snap-private-tmp
touch /home/ubuntu/.ssh/authorized_keys
for path in /etc/hosts.new /var/log/syslog /var/lib/apt/list /home/ubuntu/.profile; do echo x > $path; done
install -d -o tpujob -g tpujob -m 700 /home/tpujob /home/tpujob/.tpujob
agent=agent-$(sha256sum /var/given/agent | cut -c 1-8)
install -o tpujob -m 600 /var/given/agent /home/tpujob/.tpujob/$agent
places='/ /dev/shm /dev/mqueue /run/lock /run/user/1001'
list() { /usr/bin/find $places -xdev -path /var/given -prune -o -printf '%y %p\n' | sort; }
list > /var/given/before
cut -d ' ' -f 2 /proc/mounts | sort > /var/given/mounts

as() { cd /home/tpujob; env -i HOME=/home/tpujob PATH=$PATH KEY="$KEY" $ENVIRONMENT runuser -u tpujob -- "$@"; }
as bash /var/given/leave.sh > /var/given/said 2>&1 || { cat /var/given/said; exit 9; }
cd /
[ -f /home/tpujob/.tpujob/$agent ] || install -o tpujob -m 600 /var/given/agent /home/tpujob/.tpujob/$agent
answer=$(as sh -c 'exec python3 ~/.tpujob/'$agent' wipe --epoch 0 --key "$KEY"') || :
echo "answer $answer"
list | comm -3 /var/given/before - | sed 's/^\t*/changed /'
cut -d ' ' -f 2 /proc/mounts | sort | comm -3 /var/given/mounts - | sed 's/^\t*/mounted /'
for path in /proc/[0-9]*; do
    line=$(tr '\0' ' ' < $path/cmdline) && case $line in *leaves*) echo "process $line"; esac
done
for kind in shm msg sem; do tail -n +2 /proc/sysvipc/$kind | sed "s/^/memory $kind /"; done
[ ! -f /home/tpujob/.ssh/authorized_keys ] || sed 's/^/login /' /home/tpujob/.ssh/authorized_keys
[ ! -f /home/tpujob/.tpujob/epoch.json ] || sed 's/^/epoch /' /home/tpujob/.tpujob/epoch.json
"""

#: what programs and people leave without a thought
ORDINARY = r"""
set -e
agent() { python3 ~/.tpujob/agent-* "$@"; }
agent start /var/given/plan-1.json --secrets-on-stdin < /var/given/told.json
until agent status | grep '"phase": "exited"'; do sleep 0.1; done
agent stop --grace 1
mkdir -p ~/.ssh ~/.cache/huggingface ~/.config/gcloud ~/.local/bin ~/.ssh/more /tmp/snapshots /tmp/.X11-unix
for path in ~/checkpoint ~/.cache/huggingface/token ~/.config/gcloud/key ~/.local/bin/tool ~/.ssh/authorized_keys2 \
    ~/.ssh/id_rsa ~/.sudo_as_admin_successful /tmp/file /tmp/snapshots/1 /tmp/.X11-unix/X99 /var/tmp/file \
    /dev/shm/file /run/lock/file /run/user/1001/file /var/crash/python3.1001.crash
do echo mine > $path; done
echo 'ssh-ed25519 AAAA a friend' > ~/.ssh/authorized_keys
sudo sh -c 'for path in /tmp/root /var/tmp/root /dev/shm/root /root/.netrc /root/.docker/config.json \
    /home/tpujob/root /var/log/journal/abc/user-1001.journal; do echo mine > $path; done
    mkdir -p /root/.config/gcloud; echo mine > /root/.config/gcloud/key
    echo "* * * * * x" > /var/spool/cron/crontabs/tpujob; chown tpujob /var/spool/cron/crontabs/tpujob'
python3 -c 'import ctypes; assert ctypes.CDLL(None).mq_open(b"/queue", 0o102, 0o600, None) > 0'
ipcmk -M 4096; ipcmk -Q; ipcmk -S 1
setsid nohup sh -c 'sleep 600; : leaves' > /dev/null 2>&1 &
env -i /usr/bin/setsid sh -c 'trap "" TERM; while :; do sleep 1; done; : leaves' > /dev/null 2>&1 &
sudo setsid sh -c 'sleep 600; : leaves' > /dev/null 2>&1 &
"""
#: what the agent does at its first start on a machine
RECORD = """set -e
python3 - ~/.tpujob/agent-* << 'END'
import sys
sys.path.insert(0, sys.argv[1])
from tpujob.agent.setup.wipe import record_first_boot
record_first_boot()
END
"""
#: a process that stays, unless it is killed
STAYS = "setsid sh -c 'sleep 600; : leaves' > /dev/null 2>&1 &\n"
#: files that have come or gone
CHANGED = {
    "f /var/lib/tpujob/first-boot",
    "f /home/tpujob/.ssh/authorized_keys",
    "f /home/tpujob/.tpujob/epoch.json",
    "f /home/tpujob/.tpujob/command.lock",
}


@pytest.fixture
def canaries() -> Iterator[list[Path]]:
    """Files of this machine where the wipe removes files of its own."""
    name = f"tpujob-canary-{uuid.uuid4().hex}"
    paths = [Path(place) / name for place in ("/tmp", "/var/tmp", "/dev/shm", "/root", "/run")]
    for path in paths:
        path.write_text("of this machine")
        os.chown(path, 1001, 1001)
    yield paths
    alive = [path for path in paths if path.exists()]
    for path in alive:
        path.unlink()
    assert alive == paths


class Machine:
    """One machine after a wipe: a program had left files on it, and the agent has wiped it."""

    def __init__(self, files: Path, canaries: list[Path], leave: str, **environment: str) -> None:
        """`given`: a folder of which it gets a copy."""
        root = files.parent / "root"
        root.mkdir()
        (files / "agent").write_bytes(build_archive())
        (files / "machine.sh").write_text(MACHINE)
        (files / "leave.sh").write_text(leave)
        (files / "told.json").write_text(told_json())
        words = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
        words += ["--propagation=private", "bash", str(files / "machine.sh"), str(root), str(files)]
        variables = " ".join(f"{name}={value}" for name, value in environment.items())
        env = {**os.environ, "ENVIRONMENT": variables, "KEY": KEY}
        done = subprocess.run(
            [*words, *map(str, canaries)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            start_new_session=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self._lines = [line.partition(" ") for line in done.stdout.splitlines()]
        self.answer = json.loads(self.lines("answer")[0])
        assert not any(root.iterdir()), "the machine is gone"

    def lines(self, kind: str) -> list[str]:
        return [text for name, _, text in self._lines if name == kind]

    def files(self) -> set[str]:
        """Return what has changed, except folders."""
        return {line for line in self.lines("changed") if not line.startswith("d ")}


def test_nothing_that_programs_leave_without_a_thought_stays(
    tmp_path: Path, canaries: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "is_own", lambda _: True)  # the machine has another user
    bucket, metadata = Bucket(tmp_path / "storage"), MetadataServer()
    try:
        host = Host(tmp_path, bucket, metadata)
        host.plan(
            "echo of the program; echo mine > file; setsid sh -c 'sleep 600; : leaves' & sleep 0"
        )
        names = ("STORAGE_EMULATOR_HOST", "GCE_METADATA_HOST")
        machine = Machine(host.home, canaries, ORDINARY, **{n: host.env[n] for n in names})
        bucket_log = bucket.log()
    finally:
        metadata.close()
        bucket.close()
    assert machine.answer == {"ok": True, "state": "wiped"}
    assert bucket_log == ["of the program"]
    assert machine.lines("process") == []
    assert machine.lines("memory") == []
    assert machine.files() == CHANGED | {"f /root/.docker/config.json"}
    assert machine.lines("login") == [KEY]
    assert [json.loads(line) for line in machine.lines("epoch")] == [{"epoch": 1, "wiped": "all"}]


@pytest.mark.parametrize(
    "leave",
    [
        "sudo su - << 'END'\nnohup " + STAYS + "END\n",
        "sudo su - -c \"nohup sh -c 'sleep 600; : leaves' > /dev/null 2>&1 &\"",
        "sudo env -i PATH=$PATH " + STAYS,
        "sudo env -i PATH=$PATH setpriv --reuid 1002 --clear-groups " + STAYS,
        "sudo env -i sh -c 'trap \"\" TERM; while :; do sleep 1; done; : leaves' > /dev/null 2>&1 &",
        *(
            f"sudo mkdir -p {path}; sudo mount -t tmpfs -o mode=1777 tmpfs {path}; echo mine > {path}/w"
            for path in ("/var/data", "/home/scratch", "/run/data", "/mnt/ram", "/tmp/ram", "/run/lock", "/etc/ssh")
        ),
        "mkdir ~/a; echo mine > ~/a/b; sudo mkdir '/var/a b'; sudo mount --bind ~/a '/var/a b'",
        "sudo mkdir /run/a; sudo mount -t tmpfs t /run/a; sudo mkdir /run/a/b; sudo mount -t tmpfs t /run/a/b",
        "sudo ipcmk -M 4096; sudo ipcmk -Q; sudo ipcmk -S 1",
        "sudo python3 -c 'import ctypes; assert ctypes.CDLL(None).mq_open(b\"/queue\", 0o102, 0o600, None) > 0'",
        "sudo sh -c 'mkdir /run/lock/mine; echo mine > /run/lock/mine/file; echo mine > /var/crash/x.0.crash'",
        "sudo sh -c 'echo \"* * * * * x\" > /var/spool/cron/crontabs/root'",
        "sudo sh -c 'mkdir /var/spool/cron/atjobs; echo x > /var/spool/cron/atjobs/a00001'",
        "sudo sh -c 'echo > /var/lib/systemd/linger/tpujob; mkdir /root/.ssh; echo x > /root/.ssh/authorized_keys'",
        "sudo sh -c 'echo > /run/systemd/transient/run-r1.timer'",
        "sudo install -d -m 1777 /run/screen; mkdir -m 700 /run/screen/S-tpujob; mkfifo /run/screen/S-tpujob/1.x",
        "mkdir ~/.tpujob/agent-weights ~/.tpujob/agent-1234567{8,9}; echo x > ~/.tpujob/agent-12345678/w",
        "echo mine > ~/.tpujob/agent-weights; echo mine > ~/.tpujob/agent-12345678",
        "mkdir /tmp/systemd-private-mine; echo mine > /tmp/systemd-private-mine/w",
        "sudo sh -c 'mkdir /tmp/systemd-private-mine; echo mine > /tmp/systemd-private-mine/w'",
        "sudo sh -c 'mkdir /tmp/snap-private-tmp/snap.x; echo mine > /tmp/snap-private-tmp/snap.x/w'",
    ],
)  # fmt: skip
def test_what_root_and_lookalike_names_hide_goes_too(
    tmp_path: Path, canaries: list[Path], leave: str
) -> None:
    machine = Machine(given(tmp_path), canaries, RECORD + leave)
    assert machine.answer == {"ok": True, "state": "wiped"}
    assert machine.lines("process") == machine.lines("memory") == machine.lines("mounted") == []
    assert machine.files() == CHANGED


@pytest.mark.parametrize(
    ("leave", "error"),
    [
        ("sudo install -d -o tpujob /opt/mine; sudo touch -d 2020-01-01 /opt/mine", "/opt/mine"),
        ("sudo sh -c 'echo weights > /data'", "/data"),
        ("sudo sh -c 'mkdir -p /usr/local/lib; echo x > /usr/local/lib/x.py'", "/usr/local/lib/x.py"),
        ("sudo sh -c 'echo x > /var/lib/docker/image/overlay2/imagedb/content/sha256/1'", "docker"),
        ("sudo sh -c 'cd /var/lib; mkdir -p containerd/store/blobs; echo x > containerd/store/blobs/1'", "blobs/1"),
        ("sudo sed -i s/NOPASSWD:// /etc/sudoers", "is not known what this host was like"),
        ("sudo rm /etc/ssh/ssh_host_ed25519_key.pub", "/etc/ssh/ssh_host_ed25519_key.pub"),
        ("sudo sh -c 'printf \"#!/bin/sh\nkill -9 \\$\\$\" > /usr/local/bin/find; "
         "chmod 755 /usr/local/bin/find'", "could not be emptied"),
        ("sudo sh -c 'echo QEMU > /sys/class/dmi/id/product_name'", "not known to be a host"),
        ("sudo rm /var/lib/tpujob/first-boot", "is not known what this host was like"),
        ("sudo sed -i 's/^boot.*/boot\\tx/' /var/lib/tpujob/first-boot", "it was restarted"),
        ("sudo umount /run/lock", "/run/lock is not mounted"),
        *(
            (f"sudo sh -c 'mkdir -p {os.path.dirname(path)}; echo mine >> {path}'", path)
            for path in (
                "/run/mine", "/run/mine/w", "/dev/mine", "/var/lib/mydata/w", "/var/mine/w", "/var/opt/mine",
                "/var/cache/mine/w", "/var/log/train.log", "/var/spool/mine/w", "/home/friend/.ssh/authorized_keys",
                "/home/ubuntu/.ssh/authorized_keys", "/home/mine/w", "/etc/environment", "/etc/profile.d/mine.sh",
                "/etc/sudoers.d/mine", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hosts",
                "/etc/systemd/system/mine.service", "/etc/cron.d/mine", "/var/spool/cron/crontabs/ubuntu",
            )
        ),
        ("sudo chmod 644 /etc/shadow", "/etc/shadow"),
        ("sudo ln -s /opt /etc/mine", "/etc/mine"),
    ],
)  # fmt: skip
def test_any_doubt_gives_the_slice_back(
    tmp_path: Path, canaries: list[Path], leave: str, error: str
) -> None:
    machine = Machine(given(tmp_path), canaries, RECORD + leave)
    assert not machine.answer["ok"]
    # the first new folder is named, and nothing below it
    names = [error, os.path.dirname(error)] if error.endswith("/w") else [error]
    assert any(name in machine.answer["error"] for name in names), machine.answer
    assert [json.loads(line).get("wiped") for line in machine.lines("epoch")] == [""]


def test_a_machine_that_was_in_use_before_its_record_is_given_back(
    tmp_path: Path, canaries: list[Path]
) -> None:
    machine = Machine(given(tmp_path), canaries, "echo mine > file")
    assert "is not known what this host was like" in machine.answer["error"]


def given(folder: Path) -> Path:
    """Return a folder for what a machine gets."""
    files = folder / "given"
    files.mkdir()
    return files
