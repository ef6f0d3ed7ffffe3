"""One log out of many: what the agents ship is read here as one log of an attempt, any line of it, as pages, windows
and matches. It comes from the bucket, so that it is there after the slice is gone; of a running attempt the hosts
themselves tell what the bucket does not have yet.

Reading changes nothing. What is stored, and where, is known to `bucket/` alone; the caller decides who may read.
"""

from tpujob.service.logs.following.live import Live as Live
from tpujob.service.logs.log import Logs as Logs
from tpujob.service.logs.log import hosts_up_to as hosts_up_to
