//! The program `servesim`.
fn main() {}
