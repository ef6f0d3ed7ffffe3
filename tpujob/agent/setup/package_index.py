"""Whether this host reaches its package index: without an external address it needs Cloud NAT, and tools wait for
minutes before they say so."""

from __future__ import annotations

import os
import socket
import threading
from importlib import import_module
from urllib.parse import urlsplit

from tpujob.agent.attempt import HostAttempt

CONNECT_TIMEOUT = 5.0  #: seconds for a connection
#: variables that name the index, in the order in which uv and pip read them
INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
CURE = (
    "a host without an external address needs Cloud NAT (`EGRESS=nat deploy/setup.sh` makes it), or an index in its "
    "network: UV_DEFAULT_INDEX in run.env"
)


def _public_index() -> str:
    """Return the address of the index that pip asks by default; empty: there is no pip."""
    try:  # the host's pip, which is no requirement of the agent
        return str(import_module("pip._internal.models.index").PyPI.simple_url)
    except (ImportError, AttributeError):
        return ""


class IndexProbe:
    """One connection to the index, made beside the installation: it decides nothing. The log says at once if it
    fails, and so does the error of an installation that fails, too."""

    def __init__(self, attempt: HostAttempt) -> None:
        self._problem, self._note = "", attempt.log.note
        variables = {**os.environ, **attempt.plan["env"]}
        index = next((variables[n] for n in INDEXES if variables.get(n)), "") or _public_index()
        self._thread = threading.Thread(target=self._connect, args=(index,), daemon=True)
        if not any(variables.get(name) for name in PROXIES):
            self._thread.start()

    def problem(self) -> str:
        """Return the end of a sentence with the problem and its cure; empty: there is none, or it is unknown."""
        if self._thread.ident is not None:
            self._thread.join(CONNECT_TIMEOUT)
        return self._problem

    def _connect(self, index: str) -> None:
        try:
            url = urlsplit(index)
            name, port = url.hostname, url.port or (80 if url.scheme == "http" else 443)
        except ValueError:
            return  # the tool names it
        if name is None:
            return  # an index in a folder
        try:
            socket.create_connection((name, port), CONNECT_TIMEOUT).close()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._problem = "; this host does not reach %s (%s): %s" % (name, reason, CURE)
            self._note("set-up: %s" % self._problem[2:])
