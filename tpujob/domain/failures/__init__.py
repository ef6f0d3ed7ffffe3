"""Failures: their cause, whether to retry, and which machine is suspected. Pure.

`decide/` derives the job's next state from them.
"""
