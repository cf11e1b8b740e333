"""From a batch to rollouts: snapshots, samplers, and the backends that run samplers."""
