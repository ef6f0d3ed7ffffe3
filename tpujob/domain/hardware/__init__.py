"""Facts of TPUs: tables of generations, types, zones, quotas and prices, with their look-ups.

`capacity/` decides what a job gets, `money/` what a job costs. `prices.py` exports prices to other rooms.
"""
