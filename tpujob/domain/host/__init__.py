"""Text in, text out: the plan that each host is given, and the reports that come back. Pure.

Who carries the plan is `adapters/ssh/`; who carries it out, `agent/`.
"""

from tpujob.domain.host.plan import LOG_SUFFIX

__all__ = ["LOG_SUFFIX"]
