"""Checkpoints of a training run: `saving.py` writes them, `stored.py` reads them, `checksums.py` verifies their bits.

The frame decides when to save, and which checkpoint to resume from.
"""
