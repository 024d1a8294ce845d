"""Readers of models and of weights: ONNX, TFLite, OpenVINO, GGUF, safetensors."""
