"""One file for each group of commands: arguments in, calls of `JobsApi`, a page out.

The page of one command is beside it; what several print is in `cli/render/`. A module here is imported only when one of
its commands runs.
"""
