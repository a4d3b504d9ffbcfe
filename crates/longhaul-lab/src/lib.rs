//! The laboratory: runs tools against each other over a path, keeps every run, draws the figures.
