//! A device as the roofline sees it: peaks, from its vendor's data sheet.

use serde::{Deserialize, Serialize};

use super::model::ComputeType;
use crate::trace::field::Fault;

/// One accelerator. Rates are peaks without sparsity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceDescription {
    /// Its name.
    pub name: String,
    /// Operations a second on 16-bit floats, in 10^12.
    pub bf16_tflops: f64,
    /// Operations a second on 8-bit floats, in 10^12; 0 if the device has none.
    pub fp8_tflops: f64,
    /// Memory, in GiB.
    pub memory_gib: f64,
    /// Memory bandwidth, in 10^9 bytes a second.
    pub memory_gb_per_s: f64,
    /// What the device can send to others while it receives as much, in 10^9 bytes a second: half of a figure that counts both
    /// directions.
    pub interconnect_gb_per_s: f64,
}

impl DeviceDescription {
    /// Checks that the figures can be a device's.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self) -> Result<(), Fault> {
        let needed = [
            ("bf16_tflops", self.bf16_tflops),
            ("memory_gib", self.memory_gib),
            ("memory_gb_per_s", self.memory_gb_per_s),
        ];
        for (field, found) in needed {
            if !(found > 0.0 && found <= 1e9) {
                return Err(Fault::new(field, found.to_string(), "more than 0, up to 10^9"));
            }
        }
        for (field, found) in [("fp8_tflops", self.fp8_tflops), ("interconnect_gb_per_s", self.interconnect_gb_per_s)] {
            if !(0.0..=1e9).contains(&found) {
                return Err(Fault::new(field, found.to_string(), "0 to 10^9"));
            }
        }
        Ok(())
    }

    /// Operations a second with a type; none if the device has no such.
    pub fn flops_per_s(&self, compute_type: ComputeType) -> Option<f64> {
        let tflops = match compute_type {
            ComputeType::Bf16 => self.bf16_tflops,
            ComputeType::Fp8 => self.fp8_tflops,
        };
        (tflops > 0.0).then_some(tflops * 1e12)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> f64 {
        self.memory_gib * (1_u64 << 30) as f64
    }
}
