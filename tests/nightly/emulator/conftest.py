from tests.contract.emulator.conftest import client, cloud

__all__ = ["client", "cloud"]
