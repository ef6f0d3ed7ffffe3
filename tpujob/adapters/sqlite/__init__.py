"""The store on one SQLite file: jobs, members, suspects and the outbox. Compares versions and writes; holds no rules.

`domain/` interprets records; `tables.py` has the tables.
"""

from tpujob.adapters.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
