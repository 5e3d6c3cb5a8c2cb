"""A policy as an artefact: manifest, ONNX, and the parity check of all runtimes."""
