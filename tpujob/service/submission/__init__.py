"""What comes before a job: its file made whole, where it may run, where its data is, and its first record."""

from tpujob.service.submission.submission import Offered, Placed, Submission, types_unknown

__all__ = ["Offered", "Placed", "Submission", "types_unknown"]
