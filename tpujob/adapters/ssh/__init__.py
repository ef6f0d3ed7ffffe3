"""Hosts over SSH: connections, keys, host keys, the upload of the agent, and a person's session.

`agent/` has the programs of a host, `domain/host/` their plans. Fabric is imported at the first connection.
"""

from tpujob.adapters.ssh.hosts import SshHosts
from tpujob.adapters.ssh.keys import FileKeys, KeyStore, new_private_key, public_line
from tpujob.adapters.ssh.secret_manager import SecretKeys
from tpujob.adapters.ssh.session import HostCommand, forward_ports, open_session

__all__ = [
    "FileKeys",
    "HostCommand",
    "KeyStore",
    "SecretKeys",
    "SshHosts",
    "forward_ports",
    "new_private_key",
    "open_session",
    "public_line",
]
