"""The log of an attempt: the segments that its hosts stored, read as one log, any line of it, as pages, windows and
matches. It comes from the bucket, so that it is there after the slice is gone; while the attempt runs, its hosts report
over SSH what the bucket does not have yet.

Reading changes nothing. What is stored, and where, is known to `segments.py` alone; the caller decides who may read.
"""

from tpujob.service.logs.live_stream import LiveLogs as LiveLogs
from tpujob.service.logs.log import Logs as Logs
from tpujob.service.logs.log import hosts_up_to as hosts_up_to
