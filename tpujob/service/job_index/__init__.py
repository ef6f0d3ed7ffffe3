"""The index of all jobs in memory: built from the store, kept current by what the store says has changed, and built
again when in doubt. Lists, counts, the spending of ended jobs and the ids of changed jobs come from it.

Which jobs match a list, and their order, is decided in `query.py`; who may see a job, by its callers.
"""

from tpujob.service.job_index.changes import Changes, EventReader
from tpujob.service.job_index.index import JobIndex
from tpujob.service.job_index.rows import job_row

__all__ = ["Changes", "EventReader", "JobIndex", "job_row"]
