"""The port `Hosts` over SSH, with Fabric: connections, keys, host keys, and the agent as it travels.

What runs on a host is `agent/`; what it is told, `domain/host/`.
"""
