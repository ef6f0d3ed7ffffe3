"""`tpujob emulator ...`: make things go wrong on the local Cloud TPU, and see how it stands.

How a fault works belongs to `emulator/faults/`.
"""
