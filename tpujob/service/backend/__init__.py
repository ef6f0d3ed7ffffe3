"""The backend about itself and all jobs at once: its health, its queue, its numbers for Prometheus.

Reads what the engine counts and what the job index has in memory; nothing of a job is decided here.
"""

from tpujob.service.backend.status import BackendStatus, ProcessFacts

__all__ = ["BackendStatus", "ProcessFacts"]
