"""The version of tpujob, in the only place that knows it: the build and `deploy/up.sh` read it here."""

__version__ = "0.1.0"
