"""How the cloud's own records name what is ours."""

LABEL = "tpujob"  #: of all that tpujob makes: `1`
JOB_LABEL = "tpujob-job"  #: of a slice: the id of its job
OWNER_LABEL = "tpujob-owner"  #: of slices and secrets: the backend that made them
