"""The page of a backend elsewhere, on this machine: what `tpujob open` runs until Ctrl-C. No page is made here, and no
rule is; requests are passed on as those of whoever has started it.
"""
