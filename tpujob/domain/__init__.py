"""Rules and records. Pure: no I/O, no clock, no randomness, no word of a vendor.

Time and what was observed come in as arguments. What touches the world is behind `ports/`.
"""
