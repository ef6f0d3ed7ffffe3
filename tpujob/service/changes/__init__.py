"""How this process learns of what was committed, by whichever process: one follower of the store for all who wait, and
the records that pages ask for again and again, read again once they have changed.
"""

from tpujob.service.changes.changes import Changes, Failing
from tpujob.service.changes.records import Records

__all__ = ["Changes", "Failing", "Records"]
