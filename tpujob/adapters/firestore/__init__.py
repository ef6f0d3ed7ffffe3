"""The store on Firestore: jobs, members, suspects and the outbox. Compares versions and writes; holds no rules.

`domain/` interprets records; `records.py` converts them to documents.
"""

from tpujob.adapters.firestore.calls import Firestore
from tpujob.adapters.firestore.store import FirestoreStore

__all__ = ["Firestore", "FirestoreStore"]
