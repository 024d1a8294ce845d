"""The engines: which pairs each adds in int16, and runs in ONNX Runtime."""
