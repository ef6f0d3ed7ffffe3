"""Checks of a request before the app sees it: sender, origin and size. The sender is the user at the other end of a
socket, the browser on this machine, or, at a deployed backend, the person or program in a token signed by Google.
Tokens are verified here, on every request.

Nothing is believed that this process has not verified itself, but for the tick of Cloud Scheduler. Who is a member, and
what members may do, is not decided here.
"""
