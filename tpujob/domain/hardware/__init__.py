"""Facts of TPUs: generations, types, zones, prices. Tables and their look-ups.

What a job may get of them is in `placement/`.
"""
