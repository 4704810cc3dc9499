//! The lock of a batch's folder, so that two batches never write into one.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

/// A process that was just killed may have left a child that holds a copy of the lock until it has started. It is waited for
/// so long.
const PATIENCE: Duration = Duration::from_millis(500);

/// Held while a batch writes into its folder; the system gives it up with the process, however that ends.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Locks a folder.
    ///
    /// # Errors
    /// A folder that cannot be written to, or that another process has locked.
    pub fn take(folder: &Path) -> anyhow::Result<Lock> {
        let path = folder.join(".lock");
        let cannot = || format!("{}: cannot be locked", path.display());
        let file = File::options().create(true).truncate(false).write(true).open(&path).with_context(cannot)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => {
                    let place = folder.display();
                    return Err(anyhow!("{place}: found another batch that writes there, expected to be the only one"));
                }
                Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
            }
        }
    }
}
