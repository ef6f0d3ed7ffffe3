from tests.contract.conftest import cloud
from tests.contract.emulator.conftest import client

__all__ = ["client", "cloud"]
