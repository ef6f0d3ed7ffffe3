"""How `tpujob data` shows what it does: the bar while it copies, and the lines and records of its end. Decides nothing
and copies nothing."""
