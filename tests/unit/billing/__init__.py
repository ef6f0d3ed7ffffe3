"""Google's billing exports: reading, sorting, and the sums."""
