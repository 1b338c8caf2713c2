"""What a change costs: the same calls on two checkouts of varopt, in turns, by processor time."""
