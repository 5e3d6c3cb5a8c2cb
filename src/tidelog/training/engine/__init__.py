"""The compiled loop: learner state, stores, streaming, offloaded segments, validation."""
