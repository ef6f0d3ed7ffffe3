from tests.contract.data.conftest import killed, rig, server

__all__ = ["killed", "rig", "server"]
