//! The wide-area emulator: a pure link model, the driver that moves real packets by it, and the
//! two network namespaces that it joins.
