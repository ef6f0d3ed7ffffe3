"""What jobs cost and what came of it: the ledger of slices, goodput, what a grant covers, reports over many jobs,
bills; what a job will cost: estimates and forecasts; and what may still be spent: budgets.

Pure, and in whole micro-dollars and whole microseconds, so that parts add up to their sum. List prices are in
`domain/hardware/prices.py`; here the past is priced by what was stored: each slice keeps the rate of its request.
"""
