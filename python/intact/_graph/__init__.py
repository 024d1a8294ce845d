"""ONNX graphs: nodes, constants, ONNX Runtime's fusions, axes."""
