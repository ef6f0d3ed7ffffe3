"""Makes adapters from settings: `backend` for the service, `client` for commands, `doctor` for checks.

The only room that knows adapters, and the only one in which local and cloud differ. No rule is here.
"""
