"""Action observers: what a run does from step to step, and whether it gets anywhere. No I/O, no clock."""
