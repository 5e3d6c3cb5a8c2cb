"""The compiled loop: learner state, stores, log streaming, validation."""
