"""`tpujob secret`: keys and passwords of one's own jobs. Where they are kept is behind `ports.Secrets`."""

HELP = "Set, list and remove secrets that jobs name in run.secrets."
