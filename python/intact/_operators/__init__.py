"""`intact operators` and `intact digest`: bytes that are the same on every CPU."""
