"""What a request passes before the app sees it: who sends it, from where, and how much. The sender is the user at the
other end of a socket, the browser on this machine, or, at a deployed backend, the person or program that a token signed
by Google names. Tokens are verified here, on every request.

Nothing is believed that this process has not verified itself, but for the tick of Cloud Scheduler. Who is a member, and
what members may do, is not decided here.
"""
