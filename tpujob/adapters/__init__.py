"""The adapters: one package for each vendor, which translates between a port and that vendor.

No adapter knows the service or its rules. Shared by several: `calling.py` (deadlines, retries, clocks) and `records.py`
(the records of stores). `s3_objects.py` and `web_files.py` read data from sources that tpujob never writes to.
"""
