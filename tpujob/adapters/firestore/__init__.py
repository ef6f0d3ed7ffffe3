"""The ports `Store` and `Reputation` on Firestore. Compares versions and writes; holds no rules.

What a record means belongs to `domain/`; how records become documents is in `records.py`.
"""

from tpujob.adapters.firestore.calls import Firestore
from tpujob.adapters.firestore.store import FirestoreStore

__all__ = ["Firestore", "FirestoreStore"]
