"""Facts of TPUs: generations, types, zones, quotas, and what Google Cloud charges. Tables and their look-ups.

What a job may get of them is decided in `capacity/`, what a job costs in `money/`. Prices have a face: `prices.py`.
"""
