"""What users ask: the methods of `JobsApi`, on records in a store. `jobs.py` is the way in.

What happens by itself is in `engine/`, what is decided in `domain/`, how it is asked in `cli/` and `web/`.
"""

from tpujob.service.admin import Admin
from tpujob.service.job_index import Changes
from tpujob.service.jobs import Jobs
from tpujob.service.members import Membership

__all__ = ["Admin", "Changes", "Jobs", "Membership"]
