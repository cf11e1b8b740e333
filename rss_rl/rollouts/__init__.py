"""From a batch to rollouts: snapshots, samplers, and who computes them."""
