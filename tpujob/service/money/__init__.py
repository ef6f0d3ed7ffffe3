"""Money: estimates of jobs, reports of their costs, and what is left of budgets.

`domain/money/` has the rules.
"""
