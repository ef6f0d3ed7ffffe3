"""What runs on a TPU VM host: standard library only, Python 3.8 and later. It travels as one archive
(`adapters/ssh/agent_archive.py`) that Python runs; `agent.py` is its way in.
"""
