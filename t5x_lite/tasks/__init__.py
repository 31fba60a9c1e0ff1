"""Named tasks that models are fine-tuned on, and their metrics.

The tasks are values in `glue`, `super_glue`, `reading`, `tagging` and `writing`; `task` has what they are made of, for
one's own.
"""
