"""What devices reply to published coefficients: the regressions, a device's scores, their sums, what these say."""
