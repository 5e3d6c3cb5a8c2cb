"""What estimators read: the target policy and the logger along a log, folds, weights."""
