"""What shows jobs while they change: one job until it ends, and the table of all.

What is printed is made in `cli/render/`.
"""
