"""Building blocks that know no model: attention, positions, feed-forward, embedding, norms and the scanned stack."""
