"""How the cloud's own records name what is ours."""

JOB_LABEL = "tpujob-job"  #: of a slice: the id of its job
