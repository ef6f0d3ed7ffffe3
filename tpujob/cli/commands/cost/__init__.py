"""`tpujob cost`: the costs of jobs, estimates, budgets and prices. The computation is in `domain/money/`."""
