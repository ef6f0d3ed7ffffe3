"""Checkpoints of a training run: `saving.py` writes them, `stored.py` reads them, `checksums.py` computes checksums.

The frame decides when to save, and which checkpoint to resume from.
"""
