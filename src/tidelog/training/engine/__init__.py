"""The compiled loop: learner state, stores, log streaming, offloaded segments, validation."""
