"""What a host is given and what it says, in records of the domain: `plan` writes plans, `reports` reads reports and
`series` their curves, `environment` tells both of environments and mounts. Pure. The JSON of both is in
`tpujob/protocol/`; who carries a plan to its host is `adapters/ssh/`, who carries it out `agent/`.
"""
