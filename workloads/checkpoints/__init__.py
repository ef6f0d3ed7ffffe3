"""Checkpoints of a training run: `saving.py` writes them, `stored.py` reads them, `checksums.py` tells their bits.

When to save, and which one to go on from, is the frame's.
"""
