"""What a run is made of: samplers, backends, trainer, checkpoints, metrics, run directory."""
