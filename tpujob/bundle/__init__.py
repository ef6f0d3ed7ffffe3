"""The user's code as one archive that is named by its content: which files, where git stood, what looks like a secret.

How the archive reaches a bucket belongs to `service/submission/`; how a host unpacks it, to `agent/setup/`.
"""

from tpujob.bundle.archive import Bundle, pack, workloads_bundle

__all__ = ["Bundle", "pack", "workloads_bundle"]
