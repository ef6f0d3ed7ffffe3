"""What the bucket has of a log: which objects, which lines each of them has (`stored.py`), and their bytes."""
