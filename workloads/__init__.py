"""The bundled training programs. They speak the contract of `contract.py` and know nothing of tpujob."""
