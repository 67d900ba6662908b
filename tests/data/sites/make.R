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

# A consortium: three hospitals that randomise by themselves, 2:1 at one; repeated visits; 9 % of outcomes missing.
library(estimatr)
set.seed(29)
patients <- data.frame(site = rep(c("Aarhus", "Bergen", "Uppsala"), c(320, 200, 260)))
patients$patient <- paste0(substr(patients$site, 1, 1), seq_len(nrow(patients)))
patients$drug <- rbinom(nrow(patients), 1, ifelse(patients$site == "Bergen", 2 / 3, 1 / 2))
patients$level <- c(Aarhus = 4, Bergen = 7, Uppsala = 5)[patients$site] + rnorm(nrow(patients))
patients$visits <- sample(1:4, nrow(patients), replace = TRUE)
rows <- patients[rep(seq_len(nrow(patients)), patients$visits), ]
rows$pain <- round(rows$level - 0.8 * rows$drug + rnorm(nrow(rows)), 2)
rows$pain[runif(nrow(rows)) < 0.09] <- NA
rows$arm <- ifelse(rows$drug == 1, "drug", "placebo")
visits <- rows[, c("site", "patient", "arm", "pain")]
write.csv(visits, file.path(folder, "consortium.csv"), row.names = FALSE, quote = FALSE, na = "")
whole <- rows[!is.na(rows$pain), ]
blocks <- difference_in_means(pain ~ drug, blocks = site, clusters = patient, data = whole)
pooled <- difference_in_means(pain ~ drug, clusters = patient, data = whole)
effects <- lm_robust(pain ~ drug, fixed_effects = ~site, clusters = patient, data = whole, se_type = "stata")
told <- data.frame(name = c("blocks", "pooled", "fixed_effects"), do.call(rbind, lapply(list(blocks, pooled, effects), function(fit) {
  data.frame(estimate = sprintf("%.17g", fit$coefficients["drug"]), std_error = sprintf("%.17g", fit$std.error["drug"]))
})))
by_site <- do.call(rbind, lapply(unique(whole$site), function(site) {
  fit <- lm_robust(pain ~ drug, clusters = patient, data = whole[whole$site == site, ], se_type = "CR2")
  data.frame(name = site, estimate = sprintf("%.17g", fit$coefficients["drug"]), std_error = sprintf("%.17g", fit$std.error["drug"]))
}))
write.csv(rbind(told, by_site), file.path(folder, "consortium_truths.csv"), row.names = FALSE, quote = FALSE)
