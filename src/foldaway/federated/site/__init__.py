"""A site with many units, which folds its own records and sends tallies of a crowd."""
