"""What a host exchanges with the bucket while an attempt lasts: its report, its log, outputs, compiled programs.

What there is to report is found by `supervision.py`; how the storage is spoken to is in `storage.py`.
"""

from tpujob.agent.upload.compile_cache import CompileCache, SealedFiles, cache_name
from tpujob.agent.upload.evidence import first_lines, pick_lines
from tpujob.agent.upload.log import Log
from tpujob.agent.upload.output_list import OutputList
from tpujob.agent.upload.outputs import PATIENCE as OUTPUTS_PATIENCE
from tpujob.agent.upload.outputs import Outputs, UnsignedOutputs
from tpujob.agent.upload.progress import ProgressReader, number
from tpujob.agent.upload.redact import Redactor
from tpujob.agent.upload.report_writer import ReportWriter

__all__ = [
    "OUTPUTS_PATIENCE", "CompileCache", "Log", "OutputList", "Outputs", "ProgressReader", "Redactor",
    "ReportWriter", "SealedFiles", "UnsignedOutputs", "cache_name", "first_lines", "number", "pick_lines",
]  # fmt: skip
