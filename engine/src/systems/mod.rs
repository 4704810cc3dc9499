//! The systems of an iteration, one file each, in the order in which they run (see [`crate::iteration`]).

pub(crate) mod admit;
pub(crate) mod allocate;
pub(crate) mod commit;
pub(crate) mod decode;
pub(crate) mod enter;
pub(crate) mod observe;
pub(crate) mod order;
pub(crate) mod preempt;
pub(crate) mod price;
pub(crate) mod publish;
pub(crate) mod settle;
pub(crate) mod stride;
pub(crate) mod undo;
