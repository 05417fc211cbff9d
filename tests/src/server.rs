//! A stand-in for a server that only takes: an ntfy server, a push service.

use crate::http::{self, Request};
use std::io::BufReader;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// A server on loopback that takes everything and answers with one status.
#[derive(Debug)]
pub struct StubServer {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    status: Arc<AtomicU16>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl StubServer {
    /// Starts it, answering 200; it ends with the test process.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let status = Arc::new(AtomicU16::new(200));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (status.clone(), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, seen) = (answer.clone(), seen.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.expect("a connection"));
                    while let Some(request) = http::read(&mut reader) {
                        seen.lock().expect("not poisoned").push(request);
                        http::answer(reader.get_mut(), answer.load(Ordering::SeqCst), "text/plain", b"");
                    }
                });
            }
        });
        Self { url, status, requests }
    }

    /// What it answers from now on.
    pub fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Requests to a path so far.
    ///
    /// # Panics
    /// When the server failed.
    #[must_use]
    pub fn requests(&self, path: &str) -> Vec<Request> {
        let all = self.requests.lock().expect("not poisoned");
        all.iter().filter(|r| r.path == path).cloned().collect()
    }
}
