"""The plans and the reports of hosts, as records of the domain: `plan` writes plans, `reports` reads reports, and
`series` reads curves. Pure. `tpujob/protocol/` has the JSON of both; `adapters/ssh/` uploads a plan, `agent/` carries
the plan out.
"""
