"""Plots of attention: which source tokens each target token attended to.

The plots use Matplotlib's objects instead of `pyplot`. So they keep no global
list of figures, need no display, and may run in several threads, as in a
server.
"""

from keras_attn.viewing.plots.plot import plot_attention as plot_attention
