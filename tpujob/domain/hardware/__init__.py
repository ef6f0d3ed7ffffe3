"""Facts of TPUs: generations, types, zones. Tables and their look-ups.

What a job may get of them is in `placement/`, what they cost in `prices/`.
"""
