"""The frame's training step against nanodo's (google-deepmind/nanodo), on the architecture of the latter.

`model.py` is that architecture for the frame, `theirs.py` loads nanodo from a checkout, `__main__.py` measures.
"""
