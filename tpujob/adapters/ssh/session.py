"""Runs `tpujob ssh` with OpenSSH's client: a shell on a host, or one command with unchanged streams of any size.

The host key must be pinned already: a person never makes the first contact. The person's key is made for this session;
the slice's key stays with the backend.
"""

import os
import select
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from tpujob.adapters.ssh.keys import host_key_changed, host_label
from tpujob.adapters.ssh.transport import IAP_HINT, Tunnel, last_message
from tpujob.api import HostAccess
from tpujob.errors import TpujobError, Transient

_NO_LOGIN = (
    "Hosts accept certificates from the first attempt on that this version of tpujob has started, and while "
    "their clock and the backend's differ by less than five minutes."
)
_PRIVATE_ADDRESS = "It is reached inside its network: run this on a machine there, or set `ssh: iap` for the backend."
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
) -> int:
    """Run `command` with its arguments unchanged, or a shell. Returns the exit code. A shell gets a terminal when
    `stdin` is one. `key`: the private key of the certificate in `access`. `tunnel`: the program for hosts behind IAP.
    Raises Transient when the host cannot be reached or disconnects; HostKeyChanged."""
    if not access["host_keys"]:
        raise _not_pinned_error(f"host {access['host']}")
    with tempfile.TemporaryDirectory(prefix="tpujob-ssh-") as folder:
        log = Path(folder, "log")
        argv = _build_argv(access, key, tunnel, Path(folder), log)
        if command is not None:
            argv.append(shlex.join(command))
        elif not os.isatty(stdin):
            argv.insert(1, "-T")
        try:
            child = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "SHELL": "/bin/sh"},  # ssh runs the tunnel in this shell
            )
        except FileNotFoundError:
            raise TpujobError(
                "there is no ssh program on this machine", hint="Install the client of OpenSSH."
            ) from None
        threading.Thread(target=_kill_without_reader, args=(child, stdout), daemon=True).start()
        code = child.wait()
        printed = log.read_text(errors="replace") if log.exists() else ""
    if code == _FAILED and printed.strip():
        raise _error_in_log(access, printed)
    return code if code >= 0 else _NO_READER


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
    which can name proxies and other keys. Messages of ssh itself go to the log."""
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
