"""What a sandbox costs, as ratios to starting a program bare."""
