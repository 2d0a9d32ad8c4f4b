"""Where the truth about batches, tasks, leases and workers is kept: Redis or Valkey, and nothing else."""
