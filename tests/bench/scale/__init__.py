"""A real backend with ten thousand jobs, whose hosts are simulated: what it costs, and how quick it is."""
