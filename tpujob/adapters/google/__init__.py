"""What a project on Google Cloud is like, asked over REST for `doctor` and `quota`. Asks only, changes nothing.

What follows from the answers belongs to `doctor/`. Callers import the modules: a command that asks `identity.py` for
the usual project must not pay for the others.
"""
