# The numbers in estimates.csv: R's estimatr on the rows of trial.csv, all kept.
# Rscript tests/data/estimatr/make.R, with estimatr 1.0.0 (Debian: r-cran-estimatr), in this folder's repository.
library(estimatr)

folder <- "tests/data/estimatr"
rows <- read.csv(file.path(folder, "trial.csv"))
rows$t <- as.numeric(rows$g == "b")
told <- data.frame()
note <- function(name, fit, term) {
  at <- which(fit$term == term)
  told <<- rbind(told, data.frame(
    name = name,
    estimate = sprintf("%.17g", fit$coefficients[at]),
    std_error = sprintf("%.17g", fit$std.error[at])
  ))
}

note("blocks", difference_in_means(y ~ t, blocks = site, data = rows), "t")
note("welch", difference_in_means(y ~ t, data = rows), "t")
note("fixed_effects_HC1", lm_robust(y ~ t, fixed_effects = ~site, data = rows, se_type = "HC1"), "t")
note("fixed_effects_covariate_HC1", lm_robust(y ~ t + x, fixed_effects = ~site, data = rows, se_type = "HC1"), "t")
note("fixed_effects_classical", lm_robust(y ~ t, fixed_effects = ~site, data = rows, se_type = "classical"), "t")
note("lin_HC1", lm_lin(y ~ t, covariates = ~ x, data = rows, se_type = "HC1"), "t")
note("difference_HC3", lm_robust(y ~ t, data = rows, se_type = "HC3"), "t")
note("regression_clustered_stata", lm_robust(y ~ t + x, clusters = u, data = rows, se_type = "stata"), "t")
note("compliers_HC1", iv_robust(y ~ d | t, data = rows, se_type = "HC1"), "d")
note("compliers_covariate", iv_robust(y ~ d + x | t + x, data = rows, se_type = "HC1"), "d")

write.csv(told, file.path(folder, "estimates.csv"), row.names = FALSE, quote = FALSE)
