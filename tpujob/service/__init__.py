"""The service: the methods of `JobsApi` on the records of a store. Start at `jobs.py`.

`engine/` does what happens without a request, `domain/` has the decisions, `cli/` and `web/` the interfaces.
"""

from tpujob.service.admin import Admin
from tpujob.service.job_index import Changes
from tpujob.service.jobs import Jobs
from tpujob.service.members import Entrance, Membership

__all__ = ["Admin", "Changes", "Entrance", "Jobs", "Membership"]
