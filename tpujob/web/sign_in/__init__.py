"""Who sends a request to a deployed backend: tokens that Google has signed, verified here, on every request.

Nothing is believed that this process has not verified itself, but for the tick of Cloud Scheduler. Who is a member, and
what members may do, is not decided here.
"""
