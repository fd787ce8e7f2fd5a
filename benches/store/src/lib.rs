//! Nothing: this package only holds a benchmark.
