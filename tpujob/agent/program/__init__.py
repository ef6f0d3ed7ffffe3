"""The program's process below its launcher, which outlives a killed agent: start, end and takeover.

`commands.py` has its variables, its signals and its uploads.
"""

from tpujob.agent.program.process import PIPE, LeftProgram, launched, start, start_error

__all__ = ["PIPE", "LeftProgram", "launched", "start", "start_error"]
