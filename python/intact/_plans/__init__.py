"""Plans: products and convolutions of the library, and their weights."""
