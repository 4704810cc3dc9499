//! What the tests share: where the recorded runs and the traces are, a plain model of the engine, random cases.

pub mod compare;
pub mod files;
pub mod random_case;
pub mod twin;
