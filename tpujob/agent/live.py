"""Sends the output of an attempt to followers before the output is in the bucket. The daemon writes to a unix socket in
the attempt's folder; `agent live` copies from the socket to an SSH session.

A slow follower misses the lines that reach the bucket meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from typing import Generator

from tpujob.agent.base import Failure, Record, remove_file
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.upload import Log
from tpujob.lib.threads import start_loop
from tpujob.protocol import live

POLL = 0.25  #: seconds between two polls for new lines
SEND_TIMEOUT = 30.0  #: seconds that a follower may take for one message


def serve(folder: AttemptFolder, host: int, log: Log) -> None:
    """Accept followers on another thread until the process ends. If listening fails, the host cannot be followed."""
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        remove_file(folder.live)
        with _short_path(folder) as path:
            listener.bind(path)
        os.chmod(folder.live, 0o600)
        listener.listen(8)
        start_loop("live", lambda: _accept_followers(listener, host, log))


def _accept_followers(listener: socket.socket, host: int, log: Log) -> None:
    while True:
        try:
            sock = listener.accept()[0]
        except OSError:  # out of descriptors
            time.sleep(1)
            continue
        if _uid_of(sock) == os.geteuid():
            threading.Thread(target=_send_output, args=(sock, host, log), daemon=True).start()
        else:
            sock.close()


def _send_output(sock: socket.socket, host: int, log: Log) -> None:
    """Send the output of this host until the follower hangs up."""
    with contextlib.suppress(OSError), sock:
        sock.settimeout(SEND_TIMEOUT)
        _send(sock, {"kind": live.TAILS, "hosts": [host]})
        after, settled, sent_at = 0, -1, 0.0
        while True:
            tail = log.pending(host, after)
            now = time.monotonic()
            if tail.lines or tail.settled != settled or now - sent_at > live.BEAT:
                _send(sock, live.to_message(tail))
                settled, sent_at = tail.settled, now
                after = max(after, tail.after, tail.line + tail.lines - 1)
            if not tail.lines:
                time.sleep(POLL)


def _send(sock: socket.socket, message: Record) -> None:
    sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")


def print_output(folder: AttemptFolder) -> None:
    """Print the messages of the attempt's daemon until the daemon ends or the reader hangs up. Raises Failure."""
    source = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(folder) as path:
            source.connect(path)
    except OSError as error:
        raise Failure("nothing can be followed here: %s" % (error.strerror or error)) from error
    if _uid_of(source) != os.geteuid():
        raise Failure("what answers there belongs to another user")
    out = sys.stdout.buffer
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            ready = select.select([source, sys.stdin], [], [])[0]
            if sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096):
                return  # the reader has hung up
            if source in ready:
                data = source.recv(256 * 1024)
                if not data:
                    return
                out.write(data)
                out.flush()


def _uid_of(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


@contextlib.contextmanager
def _short_path(folder: AttemptFolder) -> Generator[str, None, None]:
    """Yield a path of the socket that fits into the 107 bytes of a unix address."""
    descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield "/proc/self/fd/%d/%s" % (descriptor, os.path.basename(folder.live))
    finally:
        os.close(descriptor)
