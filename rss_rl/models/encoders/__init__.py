"""Sentence encoders: embedded tokens and a selection to one vector per sentence."""
