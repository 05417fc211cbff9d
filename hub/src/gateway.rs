//! Sockets: TLS, HTTP, handshake, JSON methods. (to be written)
