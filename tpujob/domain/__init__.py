"""Pure decisions: no I/O, no clock, no randomness, no word of a vendor."""
