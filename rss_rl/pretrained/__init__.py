"""Pretrained transformers: their folders, subword pieces, and reading the kept words of a text."""
