"""One sync: what is on each side, what differs, how one file goes up or comes down, and the ledger by which it goes on
after it was ended. `run.Sync` is the way in. Where files come from and what they are called is in `tpujob.data`; here
nothing knows a vendor.
"""
