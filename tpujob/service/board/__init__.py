"""Lists of jobs: a row of every job in memory, the pages that are cut out of them, and what a row says.

Which jobs match, and their order, is decided in `domain/listing/`.
"""

from tpujob.service.board.board import Board
from tpujob.service.board.rows import job_row

__all__ = ["Board", "job_row"]
