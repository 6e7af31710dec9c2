"""Attention: what a paged kernel must return for a batch, and how far off it may be."""
