"""A backend in a world of its own for each story."""

from tests.support.firestore_emulator import firestore_endpoint, firestore_place
from tests.support.local_stack import stack
from tests.support.stage import stage

__all__ = ["firestore_endpoint", "firestore_place", "stack", "stage"]
