"""The page of one job and what lies below it: its curves, its spec, its code, what differs from another job, and the
buttons that steer it. What is drawn is computed in `drawing.py`; what is said comes from the API.
"""

from tpujob.web.pages.one_job import curves, files, page, steer

__all__ = ["curves", "files", "page", "steer"]
