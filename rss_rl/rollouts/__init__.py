"""Rollouts, snapshots, samplers, and the backends that run samplers."""
