//! The protocol of nuttcp 6.1 and later.
