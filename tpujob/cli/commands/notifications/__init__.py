"""`tpujob notifications`: where people are told what happened, what was sent, and what to do about what was not."""

HELP = "Show where people are told of jobs, and what was sent; test, replay, mute."
