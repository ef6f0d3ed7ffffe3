"""What runs on a TPU VM host: one file, standard library only, Python 3.8 and later."""
