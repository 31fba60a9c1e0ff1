"""Pictures of attention, positions, corruption and learning curves.

Every `draw_*` of `drawing` and `corruption` takes plain arrays and returns a `Picture`: a matplotlib figure that shows
itself in a notebook, without pyplot and its global state, and that `save` writes to a file. Those two modules load
matplotlib and are imported by code that draws; `attention` is not one of them.
"""
