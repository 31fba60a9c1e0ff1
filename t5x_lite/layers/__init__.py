"""Building blocks that know no model: attention, positions, feed-forward, embeddings, norms, heads, scanned stack."""
