//! Scenarios: the real hub and the real node, started as processes, used through their command lines.

mod approval;
mod cli;
mod crash;
mod demo;
mod lines;
mod pairing;
mod regression;
