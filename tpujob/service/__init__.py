"""What users ask: the methods of `JobsApi`, on records in a store. `jobs.py` is the way in.

What happens by itself belongs to `engine/`; what is decided, to `domain/`; how it is asked, to `cli/` and `web/`.
"""
