"""The model of Cloud TPU: the states of nodes and queued resources, quota, capacity, physical hosts, interruptions.

Pure: no I/O, no clock, no randomness, no threads. The emulator's API (`tpu/`) answers from it, and the simulation of
the tests plays it. Callers import the modules.
"""
