"""`make bench`: what a training step costs beside another way to do the same."""
