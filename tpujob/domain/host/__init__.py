"""The plans and the reports of hosts, as records of the domain: `plan` writes plans, `reports` and `series` read
reports. Pure. `tpujob/protocol/` has the JSON of both; `adapters/ssh/` uploads plans, `agent/` carries them out.
"""
