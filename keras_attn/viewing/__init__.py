"""Attention can be seen: pictures, pages, saliency."""
