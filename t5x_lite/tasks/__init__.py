"""Benchmarks as values to fine-tune on: `glue`, `super_glue`, `reading`, `sequences`; `task` has what they are made of,
for one's own."""
