"""A trained model in use: in Python, over files and as ONNX."""
