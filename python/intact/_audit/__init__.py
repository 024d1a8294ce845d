"""`intact audit`: which layers of a model can compute wrong sums."""
