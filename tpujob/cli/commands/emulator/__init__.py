"""`tpujob emulator`: `group.py` has the whole command, imported when it runs. What a fault does is in `emulator/`."""
