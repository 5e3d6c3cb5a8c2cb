"""What PPG and off-policy PPG share: the network step, both phases, distillation."""
