# The rats of rats.csv, and the numbers in truths.csv: R's survival on these rows, all kept.
# Rscript tests/data/survival/make.R, with survival 3.5-3 (Debian: r-cran-survival), in this folder's repository.
library(survival)

folder <- "tests/data/survival"
until <- 104
rows <- rats[, c("litter", "rx", "time", "status")]
rows$weight <- 1 + rows$litter %% 3 / 2
rows$group <- rows$litter %% 16
rows$stratum <- rows$litter %/% 26
write.csv(rows, file.path(folder, "rats.csv"), row.names = FALSE, quote = FALSE)

told <- data.frame()
note <- function(name, ...) {
  values <- unlist(list(...), use.names = FALSE)
  told <<- rbind(told, data.frame(name = name, place = seq_along(values) - 1, value = sprintf("%.17g", values)))
}

# Independent records: Greenwood's errors, restricted means, the log-rank test. Pike's ratio is (O/E) over (O/E).
fit <- survfit(Surv(time, status) ~ rx, rows, conf.type = "log-log")
at <- summary(fit, times = c(70, 90, 104))
note("survival", at$surv)
note("survival_std_error", at$std.err)
note("survival_lower", at$lower)
note("survival_upper", at$upper)
means <- summary(fit, rmean = until)$table
note("rmean", means[, "rmean"])
note("rmean_std_error", means[, "se(rmean)"])
test <- survdiff(Surv(time, status) ~ rx, rows)
note("log_rank", test$obs[2], test$exp[2], test$var[2, 2], test$chisq, pchisq(test$chisq, 1, lower.tail = FALSE))

# Rounded up to four weeks.
coarse <- transform(rows, time = 4 * ceiling(time / 4))
note("coarse_rmean", summary(survfit(Surv(time, status) ~ rx, coarse), rmean = until)$table[, "rmean"])
note("coarse_log_rank", survdiff(Surv(time, status) ~ rx, coarse)$chisq)

# Weighted: curves, and of Cox's model at a ratio of one the score and its robust variance.
weighted <- survfit(Surv(time, status) ~ rx, rows, weights = weight, robust = TRUE, id = seq_len(nrow(rows)))
note("weighted_survival", summary(weighted, times = c(70, 90, 104))$surv)
note("weighted_survival_std_error", summary(weighted, times = c(70, 90, 104))$std.err)
score <- function(by, data, weights, model = Surv(time, status) ~ rx) {
  data$w <- weights
  environment(model) <- environment()  # residuals look for the rows there
  still <- coxph.control(iter.max = 0)
  null <- coxph(model, data, weights = w, init = 0, ties = "breslow", control = still)
  residuals(null, type = "score", collapse = by, weighted = TRUE)
}
each <- score(seq_len(nrow(rows)), rows, rows$weight)
note("weighted_log_rank", sum(each), sum(each^2))

# Litters in 16 groups, each of which is left out in turn; the score's parts by group.
groups <- sort(unique(rows$group))
jackknife <- function(f) {
  without <- sapply(groups, function(g) f(rows[rows$group != g, ]))
  (length(groups) - 1) / length(groups) * sum((without - mean(without))^2)
}
rmean <- function(data) diff(summary(survfit(Surv(time, status) ~ rx, data), rmean = until)$table[, "rmean"])
note("clustered_rmean", rmean(rows), sqrt(jackknife(rmean)))
beyond <- function(data) diff(summary(survfit(Surv(time, status) ~ rx, data), times = 90)$surv)
note("clustered_beyond_90", beyond(rows), sqrt(jackknife(beyond)))
parts <- score(rows$group, rows, rep(1, nrow(rows)))
note("clustered_log_rank", sum(parts), length(groups) * var(parts))

# Mantel's and Haenszel's ratio, from R's own tables of those at risk, and Cox's for comparison.
sides <- function(data) {
  times <- sort(unique(data$time[data$status == 1]))
  arm <- function(a) {
    own <- data[data$rx == a, ]
    list(d = sapply(times, function(t) sum(own$time == t & own$status == 1)),
         n = sapply(times, function(t) sum(own$time >= t)))
  }
  t <- arm(1)
  c <- arm(0)
  c(sum(t$d * c$n / (t$n + c$n)), sum(c$d * t$n / (t$n + c$n)))
}
ratio <- function(data) {
  both <- sides(data)
  log(both[1] / both[2])
}
note("mantel_haenszel", ratio(rows), sqrt(jackknife(ratio)))
leave_one <- sapply(seq_len(nrow(rows)), function(i) ratio(rows[-i, ]))
note("mantel_haenszel_by_record", sqrt((nrow(rows) - 1) / nrow(rows) * sum((leave_one - mean(leave_one))^2)))
cox <- coxph(Surv(time, status) ~ rx, rows)
note("cox", coef(cox), sqrt(vcov(cox)[1, 1]))

# Within strata: those at risk are compared with others of their stratum.
within <- Surv(time, status) ~ rx + strata(stratum)
test <- survdiff(within, rows)
note("stratified_log_rank", sum(test$obs[2, ]), sum(test$exp[2, ]), test$var[2, 2], test$chisq)
each <- score(seq_len(nrow(rows)), rows, rows$weight, within)
note("stratified_weighted_log_rank", sum(each), sum(each^2))
parts <- score(rows$group, rows, rep(1, nrow(rows)), within)
note("stratified_clustered_log_rank", sum(parts), length(groups) * var(parts))
stratified <- function(data) {
  both <- rowSums(sapply(split(data, data$stratum), sides))
  log(both[1] / both[2])
}
note("stratified_mantel_haenszel", stratified(rows), sqrt(jackknife(stratified)))

write.csv(told, file.path(folder, "truths.csv"), row.names = FALSE, quote = FALSE)
