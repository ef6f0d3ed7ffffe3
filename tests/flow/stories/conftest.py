from tests.support.firestore_emulator import firestore_endpoint, firestore_place
from tests.support.stage import stage

__all__ = ["firestore_endpoint", "firestore_place", "stage"]
