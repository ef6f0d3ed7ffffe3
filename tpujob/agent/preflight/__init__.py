"""The check before a program starts: that this host, and all hosts together, are what they should be.

What is installed for the program belongs to `setup/`.
"""

from tpujob.agent.preflight.check import BadDevice, Preflight, invalidate

__all__ = ["BadDevice", "Preflight", "invalidate"]
