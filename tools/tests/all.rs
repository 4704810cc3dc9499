//! Tests of the program as a user calls it, one module a kind.

mod bad_input;
mod bad_settings;
mod command_line;
mod documents;
mod memory;
mod program;
mod result_files;
mod trace_info;
mod verify;
