"""One vendor a package: each translates between a port and that vendor. No adapter knows the service or its rules.

What several of them need is here: `calling.py` (deadlines, repeats, clocks), `records.py` (what stores write);
also the two sources that take one module each, `s3_objects.py` and `web_files.py`: nothing is written there.
"""
