"""The money of jobs: past costs and goodput (ledger, reports), future costs (estimates, forecasts), and budgets.

Pure. Amounts are whole micro-dollars and whole microseconds, so parts add up to their sum. List prices are in
`domain/hardware/prices.py`. Past costs do not use them: each slice keeps the rate that its request stored.
"""
