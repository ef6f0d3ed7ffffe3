"""Configuration: settings, contexts, and the processes of the local stack.

`settings.py` is the only reader of the environment. No rule of a job is here, and no adapter.
"""
