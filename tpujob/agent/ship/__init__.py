"""What leaves a host: its report, and the segments of its log.

What is in them is found by `watch/`; the server that takes them is spoken to by `storage.py`.
"""
