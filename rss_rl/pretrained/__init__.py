"""Pretrained transformers: their folders, pieces of words, and reading what is kept of a text."""
