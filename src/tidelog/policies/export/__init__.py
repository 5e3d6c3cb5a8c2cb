"""A policy as an artefact: manifest, ONNX, and the comparison of all readers."""
