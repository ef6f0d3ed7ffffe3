"""`tpujob notifications`: where people are told what happened, what was sent, and what to do about what was not."""

HELP = "Show the notification channels; test them."
