"""Runs `tpujob ssh`, `exec` and `forward` with OpenSSH's client: a shell on a host, or one command with unchanged
streams of any size; a command whose lines are read; ports of this machine that lead to ports of a host.

The host key must be pinned already: a person never makes the first contact. The person's key is made for this session;
the slice's key stays with the backend.
"""

import os
import re
import select
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import IO

from tpujob.adapters.ssh.keys import host_key_changed, host_label
from tpujob.adapters.ssh.transport import IAP_HINT, Tunnel, last_message
from tpujob.api import HostAccess
from tpujob.errors import BadRequest, TpujobError, Transient

_NO_LOGIN = (
    "Hosts accept certificates from the first attempt on that this version of tpujob has started, and while "
    "their clock and the backend's differ by less than five minutes."
)
_PRIVATE_ADDRESS = "It is reached inside its network: run this on a machine there, or set `ssh: iap` for the backend."
#: lines among the messages of ssh that are ours
_CONNECTED, _ENDED = "tpujob-connected", "tpujob-ended"
#: exit code of ssh when it fails itself, or a signal ended the command
_FAILED = 255
#: exit code, as in a shell, when no program reads our output any more
_NO_READER = 141
_OPTIONS = (
    "IdentitiesOnly=yes", "IdentityAgent=none", "PreferredAuthentications=publickey", "StrictHostKeyChecking=yes",
    "GlobalKnownHostsFile=none", "UpdateHostKeys=no", "ConnectTimeout=60", "ServerAliveInterval=15",
)  # fmt: skip


def open_session(
    access: HostAccess,
    key: str,
    command: list[str] | None,
    *,
    stdin: int = 0,
    stdout: int = 1,
    stderr: int = 2,
    tunnel: Sequence[str] = ("gcloud",),
    forwards: Sequence[str] = (),
) -> int:
    """Run `command` with its arguments unchanged, or a shell. Returns the exit code. A shell gets a terminal when
    `stdin` is one. `key`: the private key of the certificate in `access`. `tunnel`: the program for hosts behind IAP.
    `forwards`: as ssh's option -L takes them. Raises Transient when the host cannot be reached or disconnects;
    HostKeyChanged; BadRequest if a port of this machine is in use."""
    with tempfile.TemporaryDirectory(prefix="tpujob-ssh-") as folder:
        log = Path(folder, "log")
        argv = _build_argv(access, key, tunnel, Path(folder), log)
        argv[1:1] = _forwarding(forwards)
        if command is not None:
            argv.append(shlex.join(command))
        elif not os.isatty(stdin):
            argv.insert(1, "-T")
        child = _start(argv, stdin=stdin, stdout=stdout, stderr=stderr)
        threading.Thread(target=_kill_without_reader, args=(child, stdout), daemon=True).start()
        code = child.wait()
        _check_end(access, code, log)
    return code if code >= 0 else _NO_READER


class HostCommand:
    """A command that runs on one host, without input. `close` kills ssh, at any time."""

    def __init__(
        self, access: HostAccess, key: str, command: Sequence[str], tunnel: Sequence[str]
    ) -> None:
        """Start. Raises as `open_session` does."""
        self._access = access
        self._folder = tempfile.TemporaryDirectory(prefix="tpujob-ssh-")
        self._log = Path(self._folder.name, "log")
        try:
            argv = _build_argv(access, key, tunnel, Path(self._folder.name), self._log)
            null, pipe = subprocess.DEVNULL, subprocess.PIPE
            argv.append(shlex.join(command))
            self._child = _start(argv, stdin=null, stdout=pipe, stderr=pipe)
        except BaseException:
            self._folder.cleanup()
            raise

    def run(self, line: Callable[[bytes, bool], None]) -> int:
        """Call `line` with each line of output, and whether it is of standard error, from two threads. Return the exit
        code, 255 if a signal ended the command. Raises Transient when the host cannot be reached or disconnects."""

        def read(stream: IO[bytes], is_error: bool) -> None:
            with stream:
                for text in stream:
                    line(text.rstrip(b"\r\n"), is_error)

        assert self._child.stdout is not None
        assert self._child.stderr is not None
        errors = threading.Thread(target=read, args=(self._child.stderr, True), daemon=True)
        errors.start()
        read(self._child.stdout, False)
        errors.join()
        code = self._child.wait()
        _check_end(self._access, code, self._log)
        return code

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        self._folder.cleanup()


def forward_ports(
    access: HostAccess,
    key: str,
    forwards: Sequence[str],
    *,
    connected: Callable[[], None],
    refused: Callable[[str], None],
    tunnel: Sequence[str] = ("gcloud",),
) -> None:
    """Forward ports until the process is interrupted. `connected` is called once the ports of this machine are open,
    `refused` with ssh's message when the host refuses a connection to its port, from another thread. Raises as
    `open_session` does."""
    with tempfile.TemporaryDirectory(prefix="tpujob-ssh-") as folder:
        messages = Path(folder, "messages")
        os.mkfifo(messages, 0o600)
        argv = _build_argv(access, key, tunnel, Path(folder), messages)
        done = f"echo {_CONNECTED} >> {shlex.quote(str(messages))}".replace("%", "%%")
        # the command runs once the ports are open
        argv[1:1] = [
            "-N",
            *_forwarding(forwards),
            "-o",
            "PermitLocalCommand=yes",
            "-o",
            f"LocalCommand={done}",
        ]
        kept: list[str] = []

        def read(stream: IO[str]) -> None:
            for message in stream:
                if message.strip() == _CONNECTED:
                    connected()
                elif message.strip() == _ENDED:
                    return
                elif "open failed" in message:
                    refused(message.strip())
                else:
                    kept.append(message)

        # opened for both, so that neither end waits for the other and the last writer does not end it
        with open(os.open(messages, os.O_RDWR), errors="replace") as stream:
            null = subprocess.DEVNULL
            child = _start(argv, stdin=null, stdout=null, stderr=null)
            reader = threading.Thread(target=read, args=(stream,), daemon=True)
            reader.start()
            try:
                code = child.wait()
            finally:
                child.terminate()
                child.wait()
                with messages.open("w") as end:
                    end.write(f"{_ENDED}\n")
                reader.join()
        raise _error_in_log(access, "".join(kept) or f"ssh ended with {code}")


def _forwarding(forwards: Sequence[str]) -> list[str]:
    options = [word for forward in forwards for word in ("-L", forward)]
    return ["-o", "ExitOnForwardFailure=yes", *options] if forwards else []


def _start(argv: list[str], *, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    # ssh runs the tunnel, and a command of this machine, in this shell
    env = {**os.environ, "SHELL": "/bin/sh"}
    try:
        return subprocess.Popen(argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
    except FileNotFoundError:
        raise TpujobError(
            "there is no ssh program on this machine", hint="Install the client of OpenSSH."
        ) from None


def _check_end(access: HostAccess, code: int, log: Path) -> None:
    """Raise our error if ssh itself has failed."""
    printed = log.read_text(errors="replace") if log.exists() else ""
    if code == _FAILED and printed.strip():
        raise _error_in_log(access, printed)


def _kill_without_reader(child: subprocess.Popen[bytes], stdout: int) -> None:
    """Kill ssh once no program reads its output: the host may not notice, and the command print for ever."""
    poll = select.poll()
    poll.register(stdout, 0)
    if any(event & select.POLLERR for _, event in poll.poll()):
        child.kill()


def _build_argv(
    access: HostAccess, key: str, tunnel: Sequence[str], folder: Path, log: Path
) -> list[str]:
    """Return the command line of ssh, without the command for the host. It ignores the configuration of this machine,
    which can name proxies and other keys. Messages of ssh itself go to the log. Raises TpujobError if no host key is
    pinned."""
    if not access["host_keys"]:
        raise _not_pinned_error(f"host {access['host']}")
    options = [*_OPTIONS]
    for option, text in (
        ("IdentityFile", key),
        ("CertificateFile", access["certificate"]),
        ("UserKnownHostsFile", "".join(f"{line}\n" for line in access["host_keys"])),
    ):
        file = folder / option
        file.touch(0o600)
        file.write_text(text)
        options.append(f'{option}="{file}"')
    if access["instance"]:
        iap = Tunnel(access["instance"], access["zone"], access["project"], tuple(tunnel))
        proxy = shlex.join(iap.command(access["port"])).replace("%", "%%")
        options.append(f"ProxyCommand={proxy} 2>> {shlex.quote(str(log))}")
    argv = ["ssh", "-F", os.devnull, "-E", str(log), "-p", str(access["port"])]
    argv += [word for option in options for word in ("-o", option)]
    return [*argv, "-l", access["user"], "--", access["address"]]


def _error_in_log(access: HostAccess, printed: str) -> TpujobError:
    """Return our error for the messages of ssh."""
    label = host_label(access["address"], access["port"])
    if "HOST IDENTIFICATION HAS CHANGED" in printed:
        return host_key_changed(label)
    if "host key is known" in printed:
        return _not_pinned_error(label)
    if taken := re.search(r"cannot listen to port: (\d+)", printed):
        return BadRequest(
            f"port {taken[1]} of this machine is in use, or this account may not use it",
            hint=f"Choose another one, such as {int(taken[1]) % 50000 + 10000}:PORT.",
        )
    where = f"host {access['host']} ({access['address']}): "
    if "Permission denied" in printed:
        return Transient(f"{where}it does not accept the certificate", hint=_NO_LOGIN)
    reason = last_message(printed).removeprefix("ssh: ")
    ip = ip_address(access["address"])
    hint = _PRIVATE_ADDRESS if ip.is_private and not ip.is_loopback else ""
    return Transient(where + reason, hint=IAP_HINT if access["instance"] else hint)


def _not_pinned_error(label: str) -> TpujobError:
    return TpujobError(
        f"no host key is pinned for {label}",
        hint="The backend pins it when it first reaches the host; `tpujob show JOB` says how far it is.",
    )
