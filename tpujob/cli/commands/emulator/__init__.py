"""`tpujob emulator`: `group.py` has the whole command, and is imported when it runs. What a fault does is in `emulator/`."""
