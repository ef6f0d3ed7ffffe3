"""tpujob keeps training jobs alive on Cloud TPUs until they are done."""

__version__ = "0.1.0"
