"""What a host exchanges with the bucket while an attempt lasts: its report, its log, outputs, compiled programs.

What there is to report is found by `watch/`; how the storage is spoken to is in `storage.py`.
"""

from tpujob.agent.ship.compile_cache import CompileCache, cache_name
from tpujob.agent.ship.evidence import first_lines, pick_lines
from tpujob.agent.ship.log import Log
from tpujob.agent.ship.output_list import OutputList
from tpujob.agent.ship.outputs import PATIENCE as OUTPUTS_PATIENCE
from tpujob.agent.ship.outputs import Outputs, UnsignedOutputs
from tpujob.agent.ship.redact import Redactor
from tpujob.agent.ship.reports import ProgressReader, ReportWriter, number
from tpujob.agent.ship.sealed import BrokenSeal, SealedFiles

__all__ = [
    "OUTPUTS_PATIENCE", "BrokenSeal", "CompileCache", "Log", "OutputList", "Outputs", "ProgressReader", "Redactor",
    "ReportWriter", "SealedFiles", "UnsignedOutputs", "cache_name", "first_lines", "number", "pick_lines",
]  # fmt: skip
