"""Evidence for estimators: target policy and logger on a log, folds, weights."""
