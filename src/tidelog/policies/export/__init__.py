"""A policy as an artefact: `artefact` writes and checks it, `onnx` traces it, `parity` compares its runtimes."""
