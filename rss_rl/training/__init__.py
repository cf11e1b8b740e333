"""From rollouts to updates: learner, trainer, and the run around them."""
