"""`intact repair`: makes the layers of a model safe."""
