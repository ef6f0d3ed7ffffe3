"""Transfers between a host and the bucket during an attempt: report, log, outputs, compiled programs. `supervision.py`
collects the facts of a report; `storage.py` is the client of the storage.
"""

from tpujob.agent.upload.compile_cache import CompileCache, SealedFiles, cache_name
from tpujob.agent.upload.evidence import error_at_end, first_lines, pick_lines
from tpujob.agent.upload.found import FoundReader
from tpujob.agent.upload.log import Log
from tpujob.agent.upload.output_list import OutputList
from tpujob.agent.upload.outputs import FINAL_TIMEOUT as OUTPUTS_PATIENCE
from tpujob.agent.upload.outputs import Outputs, UnsignedOutputs
from tpujob.agent.upload.progress import ProgressReader, number
from tpujob.agent.upload.redact import Redactor
from tpujob.agent.upload.report_writer import ReportWriter

__all__ = [
    "OUTPUTS_PATIENCE", "CompileCache", "FoundReader", "Log", "OutputList", "Outputs", "ProgressReader", "Redactor",
    "ReportWriter", "SealedFiles", "UnsignedOutputs", "cache_name", "error_at_end", "first_lines", "number",
    "pick_lines",
]  # fmt: skip
