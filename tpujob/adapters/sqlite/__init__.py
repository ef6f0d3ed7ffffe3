"""The ports `Store` and `Reputation` on one SQLite file. Compares versions and writes; holds no rules.

What a record means belongs to `domain/`; the tables, and how old files are brought up to date, are in `tables.py`.
"""

from tpujob.adapters.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
