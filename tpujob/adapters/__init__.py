"""The adapters: one package for each vendor, which translates between a port and that vendor.

No adapter knows the service or its rules. Shared by several: `calling.py` (deadlines, retries, clocks), `records.py`
(the records of stores) and `session_http.py` (requests to other servers). `s3_objects.py` and `web_files.py` read data
from sources that tpujob never writes to.
"""
