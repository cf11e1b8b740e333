"""Trained models behind a page and a JSON interface; nothing here is imported unless it serves."""
