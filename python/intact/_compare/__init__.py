"""`intact compare`: a quantized model against its float model, layer by layer."""
