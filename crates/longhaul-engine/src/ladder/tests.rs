//! A climb within this process.
