//! STAMP (RFC 8762 and 8972) and TWAMP Light (RFC 5357, appendix I).
