"""What a failure means: its cause, whether to try again, and which machine is suspected. Pure.

What follows for the job's state is in `decide/`.
"""
