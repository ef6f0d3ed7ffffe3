"""The probes of `tpujob doctor --probe`: what a real project answers where tpujob relies on what nobody documents.

`table.py` lists every probe and what it settles; a probe looks through the port `cloud.ProbedCloud` and returns a
verdict. `run.py` tries them in order and cleans up; `spend.py`, `redact.py` and `record.py` are the price, the removal
of names and the record of what must be removed. No adapters, and no printing: `cli/render/doctor/probe.py`.
"""
