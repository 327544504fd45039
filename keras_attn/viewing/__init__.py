"""Shows attention: plots, HTML pages, and saliency for comparison."""
