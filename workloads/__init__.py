"""The bundled training programs. They keep to `contract/` and know nothing of tpujob."""
