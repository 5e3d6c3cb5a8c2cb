"""Common parts of PPG and off-policy PPG: the network step, both phases, distillation."""
