"""What the hosts of a running attempt tell those who follow its log, before the bucket has it."""
