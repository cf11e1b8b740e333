"""From rollouts to updates: learner, session, trainer, and the run around them."""
