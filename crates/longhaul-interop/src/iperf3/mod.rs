//! The protocol of iperf3 3.1 and later.
