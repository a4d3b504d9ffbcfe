//! Whole-program tests. They make namespaces and devices, so they run as root; without that they
//! fail and show why.

mod wan;
