"""What every request passes before it reaches a route, and every answer on its way back: connections, host name,
authentication, limits, errors. Nothing here knows a job.
"""
