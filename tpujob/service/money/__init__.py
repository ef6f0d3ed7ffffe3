"""What users ask of money: what a job will cost, what jobs have cost, and what is left of budgets.

The rules are in `domain/money/`.
"""
