"""How fast a Llama of 1.24e9 parameters and a ViT-B/16 train on one GPU, beside PyTorch on the same one.

`rows.py` says what is measured and counts its arithmetic, `on_jax.py` and `on_torch.py` measure, `__main__.py` gives
each group a process of its own, keeps the time and prints the table.
"""
