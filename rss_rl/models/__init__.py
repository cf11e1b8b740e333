"""Torch modules of the reward model: embeddings, encoders and task heads."""
