"""`tpujob emulator`: the commands that inject faults and show the emulator's state. Faults are in `tpujob.emulator`."""
