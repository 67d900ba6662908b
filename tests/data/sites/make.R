# Effects by site, and the numbers in truths.csv: R's metafor on them.
# Rscript tests/data/sites/make.R, with metafor 3.8-1 (Debian: r-cran-metafor), in this repository's folder.
library(metafor)

folder <- "tests/data/sites"
bcg <- escalc(measure = "RR", ai = tpos, bi = tneg, ci = cpos, di = cneg, data = dat.bcg)
normand <- escalc(measure = "MD", m1i = m1i, sd1i = sd1i, n1i = n1i, m2i = m2i, sd2i = sd2i, n2i = n2i, data = dat.normand1999)
alike <- data.frame(yi = c(-1.2, -0.9, -1.1, -1.4), vi = c(0.20, 0.31, 0.15, 0.40))  # no heterogeneity
two <- data.frame(yi = c(0.1, 0.9), vi = c(0.02, 0.05))
sets <- list(bcg = bcg, normand = normand, alike = alike, two = two)

effects <- data.frame()
told <- data.frame()
for (name in names(sets)) {
  rows <- data.frame(yi = as.numeric(sets[[name]]$yi), vi = as.numeric(sets[[name]]$vi))
  effects <- rbind(effects, data.frame(
    set = name, effect = sprintf("%.17g", rows$yi), variance = sprintf("%.17g", rows$vi)
  ))
  fit <- rma(yi, vi, data = rows, method = "REML", test = "knha", control = list(threshold = 1e-12 * var(rows$yi), maxiter = 10000))
  told <- rbind(told, data.frame(set = name, name = c(
    "estimate", "std_error", "lower", "upper", "p_value", "tau2", "i2", "q", "q_p_value"
  ), value = sprintf("%.17g", c(
    fit$b, fit$se, fit$ci.lb, fit$ci.ub, fit$pval, fit$tau2, fit$I2, fit$QE, fit$QEp
  ))))
}
write.csv(effects, file.path(folder, "effects.csv"), row.names = FALSE, quote = FALSE)
write.csv(told, file.path(folder, "truths.csv"), row.names = FALSE, quote = FALSE)
