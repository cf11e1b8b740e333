"""Losses and optimisers of classifier and policy, phases, share control, groups of learners."""
