"""`tpujob emulator`: a file for each group of faults. `group.py` has the whole command; it is imported when it runs."""

HELP = "Inject faults into the local Cloud TPU, and show its state."
