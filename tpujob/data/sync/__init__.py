"""One sync: what is at both ends, what differs, and how one object is copied so that it is whole and verified. The way
in is `run.Sync`.
"""
