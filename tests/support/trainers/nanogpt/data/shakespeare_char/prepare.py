"""Writes the bytes of `input.txt` as 16-bit numbers."""

from pathlib import Path

import numpy as np

text = Path(__file__).with_name("input.txt").read_bytes()
np.frombuffer(text, dtype=np.uint8).astype(np.uint16).tofile(Path(__file__).with_name("train.bin"))
