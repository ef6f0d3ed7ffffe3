"""`tpujob emulator`: a file for each group of faults. `group.py` has the whole command; it is imported when it runs."""
