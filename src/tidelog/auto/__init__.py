"""Settings that follow a log or an environment: `settings` has the rules, `sharpness` chooses how sharp a policy is."""
