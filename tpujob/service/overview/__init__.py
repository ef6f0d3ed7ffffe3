"""The lab as a whole: the events of all jobs, and the hardware that is there, asked for and refused. Reads records and
what the reconciler remembers; asks the cloud for quota alone, and seldom. One job is `service/jobs.py`; money is
`service/money/`."""

from tpujob.service.overview.overview import Overview as Overview
from tpujob.service.overview.quotas import Quotas as Quotas
