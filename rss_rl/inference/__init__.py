"""A trained model in use: in Python, over files, as ONNX, on a page that shows it."""
