"""`tpujob ssh`: a person's shell on a host, or one command with unchanged streams of any size, by OpenSSH's client.

The host key must be pinned already: a person never makes the first contact. The key is the person's own, made for this
session; the slice's key stays with the backend.
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

from tpujob.adapters.ssh.keys import changed, host_label
from tpujob.adapters.ssh.transport import IAP_HINT, Tunnel, telling
from tpujob.api import HostAccess
from tpujob.errors import TpujobError, Transient

_NO_LOGIN = (
    "Hosts accept certificates from the first attempt on that this version of tpujob has started, and while "
    "their clock and the backend's differ by less than five minutes."
)
_INSIDE = "It is reached inside its network: run this on a machine there, or set `ssh: iap` for the backend."
#: the client's exit code for a failure of its own, and for a command that a signal ended
_FAILED = 255
#: the exit code when no program reads our output any more, as a shell gives it
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
    """Run `command`, with its arguments unchanged, or a shell; returns the exit code. A shell gets a terminal when
    `stdin` is one. `key` is the private half of the one that `access` was given for; `tunnel` is the program for hosts
    behind IAP. Raises Transient when the host cannot be reached or disconnects, HostKeyChanged."""
    if not access["host_keys"]:
        raise _not_pinned(f"host {access['host']}")
    with tempfile.TemporaryDirectory(prefix="tpujob-ssh-") as folder:
        log = Path(folder, "log")
        words = _words(access, key, tunnel, Path(folder), log)
        if command is not None:
            words.append(shlex.join(command))
        elif not os.isatty(stdin):
            words.insert(1, "-T")
        try:
            child = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "SHELL": "/bin/sh"},  # it runs the tunnel
            )
        except FileNotFoundError:
            raise TpujobError(
                "there is no ssh program on this machine", hint="Install the client of OpenSSH."
            ) from None
        threading.Thread(target=_end_without_reader, args=(child, stdout), daemon=True).start()
        code = child.wait()
        printed = log.read_text(errors="replace") if log.exists() else ""
    if code == _FAILED and printed.strip():
        raise _explained(access, printed)
    return code if code >= 0 else _NO_READER


def _end_without_reader(child: subprocess.Popen[bytes], stdout: int) -> None:
    """End the client once no program reads its output: a host need not notice that, and its command may print for
    ever."""
    poll = select.poll()
    poll.register(stdout, 0)
    if any(event & select.POLLERR for _, event in poll.poll()):
        child.kill()


def _words(
    access: HostAccess, key: str, tunnel: Sequence[str], folder: Path, log: Path
) -> list[str]:
    """The command line, without the command for the host. No configuration of this machine is read: it can name proxies
    and other keys. What the client prints of its own goes to the log."""
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
        through = Tunnel(access["instance"], access["zone"], access["project"], tuple(tunnel))
        carry = shlex.join(through.command(access["port"])).replace("%", "%%")
        options.append(f"ProxyCommand={carry} 2>> {shlex.quote(str(log))}")
    words = ["ssh", "-F", os.devnull, "-E", str(log), "-p", str(access["port"])]
    words += [word for option in options for word in ("-o", option)]
    return [*words, "-l", access["user"], "--", access["address"]]


def _explained(access: HostAccess, printed: str) -> TpujobError:
    """Return what the client's own messages mean."""
    label = host_label(access["address"], access["port"])
    if "HOST IDENTIFICATION HAS CHANGED" in printed:
        return changed(label)
    if "host key is known" in printed:
        return _not_pinned(label)
    where = f"host {access['host']} ({access['address']}): "
    if "Permission denied" in printed:
        return Transient(f"{where}it does not accept the certificate", hint=_NO_LOGIN)
    reason = telling(printed).removeprefix("ssh: ")
    at = ip_address(access["address"])
    hint = _INSIDE if at.is_private and not at.is_loopback else ""
    return Transient(where + reason, hint=IAP_HINT if access["instance"] else hint)


def _not_pinned(label: str) -> TpujobError:
    return TpujobError(
        f"no host key is pinned for {label}",
        hint="The backend pins it when it first reaches the host; `tpujob show JOB` says how far it is.",
    )
