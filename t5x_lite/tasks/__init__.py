"""Named tasks that models are fine-tuned on, and their metrics."""
