"""The agent: runs on a TPU VM host, with the standard library only, on Python 3.8 and later. Python runs it from one
archive (`adapters/ssh/agent_calls.py`); `agent.py` has the entry point.
"""
