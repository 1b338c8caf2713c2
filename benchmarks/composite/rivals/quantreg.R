# Fits on request: standard input brings n, p, tau, X by columns and y as doubles, then pairs of doubles (which, eps);
# each pair is answered by a line with the coefficients, the intercept last.
suppressWarnings(suppressPackageStartupMessages({library(quantreg); library(conquer)}))
input <- file("stdin", "rb")
numbers <- function(count) readBin(input, "double", count)
size <- numbers(3)
n <- size[1]; p <- size[2]; tau <- size[3]
X <- matrix(numbers(n * p), n, p)
y <- numbers(n)
wide <- cbind(X, 1)
cat("ready\n")
flush(stdout())
while (length(request <- numbers(2)) == 2) {
  coefficients <- switch(request[1],
    rq.fit.fnb(wide, y, tau, eps = request[2])$coefficients,
    rq.fit.pfn(wide, y, tau, eps = request[2])$coefficients,
    {found <- conquer(X, y, tau, kernel = "Gaussian")$coeff; c(found[-1], found[1])}
  )
  cat(sprintf("%.17g", coefficients), "\n")
  flush(stdout())
}
