"""`tpujob cost`: what jobs have cost, and will cost. How that is computed is in `domain/money/`."""
