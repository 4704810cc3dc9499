//! Tests of the program as a user calls it, one module a kind.

mod bad_input;
mod bad_settings;
mod command_line;
mod documents;
mod kv_events;
mod kv_events_zmq;
mod memory;
mod program;
mod result_files;
mod timing;
mod trace_info;
mod verify;
