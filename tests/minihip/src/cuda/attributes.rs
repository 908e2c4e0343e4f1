//! Which of CUDA's device attributes answers which of HIP's.

use crate::error::{HipError, HipResult};

/// Where the value of a HIP attribute comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `CUdevice_attribute`.
    Driver(i32),
    /// The same on every device of this backend.
    Constant(i32),
}
use Source::{Constant, Driver};

/// `hipDeviceAttribute_t`, and what answers it.
const TABLE: &[(i32, Source)] = &[
    (0, Driver(32)),   // ECC
    (1, Driver(109)),  // access policy window
    (2, Driver(40)),   // copy engines
    (3, Driver(19)),   // mapped host memory
    (4, Driver(91)),   // host pointers of registered memory
    (5, Driver(13)),   // clock, kHz
    (6, Driver(20)),   // compute mode
    (7, Driver(90)),   // compute preemption
    (8, Driver(31)),   // concurrent kernels
    (9, Driver(89)),   // concurrent managed access
    (10, Driver(95)),  // cooperative launch
    (11, Constant(0)), // cooperative launch over several devices: gone from the driver
    (12, Driver(15)),  // copy beside kernels
    (13, Driver(101)), // managed memory directly from the host
    (14, Driver(79)),  // global memory in L1
    (15, Driver(86)),  // atomics on host memory
    (16, Driver(18)),  // integrated
    (17, Driver(84)),  // multi-GPU board
    (18, Driver(17)),  // time limit on kernels
    (19, Driver(38)),  // L2 bytes
    (20, Driver(80)),  // local memory in L1
    (21, Constant(0)), // LUID and its node mask: Windows only
    (22, Constant(0)),
    (23, Driver(75)),  // major
    (24, Driver(83)),  // managed memory
    (25, Driver(106)), // blocks per multiprocessor
    (26, Driver(2)),   // block x, y, z
    (27, Driver(3)),
    (28, Driver(4)),
    (29, Driver(5)), // grid x, y, z
    (30, Driver(6)),
    (31, Driver(7)),
    (32, Driver(55)), // surfaces: 1D, layered
    (33, Driver(61)),
    (34, Driver(56)), // 2D, layered
    (35, Driver(63)),
    (36, Driver(58)), // 3D
    (37, Driver(66)), // cubemap, layered
    (38, Driver(67)),
    (39, Driver(21)), // textures: 1D, layered, linear, mipmapped
    (40, Driver(42)),
    (41, Driver(69)),
    (42, Driver(77)),
    (43, Driver(22)), // 2D x and y, gathered, layered, linear, mipmapped
    (44, Driver(23)),
    (45, Driver(45)),
    (46, Driver(27)),
    (47, Driver(70)),
    (48, Driver(73)),
    (49, Driver(24)), // 3D x, y, z, alternative
    (50, Driver(25)),
    (51, Driver(26)),
    (52, Driver(47)),
    (53, Driver(52)), // cubemap, layered
    (54, Driver(53)),
    (55, Driver(2)),   // threads in x
    (56, Driver(1)),   // threads per block
    (57, Driver(39)),  // threads per multiprocessor
    (58, Driver(11)),  // pitch
    (59, Driver(37)),  // memory bus
    (60, Driver(36)),  // memory clock
    (61, Driver(76)),  // minor
    (62, Driver(85)),  // board group
    (63, Driver(16)),  // multiprocessors
    (65, Driver(88)),  // pageable memory access
    (66, Driver(100)), // ... through the host's page tables
    (67, Driver(33)),  // PCI bus, device, domain
    (68, Driver(34)),
    (69, Driver(50)),
    (70, Driver(108)), // persisting L2
    (71, Driver(12)),  // registers per block
    (72, Driver(82)),  // registers per multiprocessor
    (73, Driver(111)), // reserved shared memory
    (74, Constant(super::module::SHARED_BYTES_PER_BLOCK)),
    (75, Driver(97)),              // shared memory by opting in
    (76, Driver(81)),              // shared memory per multiprocessor
    (77, Driver(87)),              // single to double
    (78, Driver(78)),              // priorities
    (79, Driver(30)),              // surface alignment
    (80, Driver(35)),              // TCC
    (81, Driver(14)),              // texture alignment
    (82, Driver(51)),              // texture pitch alignment
    (83, Driver(9)),               // constant memory
    (85, Driver(41)),              // unified addressing
    (87, Driver(10)),              // warp
    (88, Driver(115)),             // memory pools
    (89, Driver(102)),             // virtual memory management
    (90, Driver(99)),              // host registration
    (91, Driver(119)),             // pool handle types
    (10_000, Constant(1_000_000)), // rate of clock instructions: the global timer's, kHz
    (10_002, Driver(81)),          // shared memory per multiprocessor
    (10_005, Constant(0)),         // HDP registers: none
    (10_006, Constant(0)),
    (10_007, Constant(0)), // cooperative launch with unmatched devices: none
    (10_008, Constant(0)),
    (10_009, Constant(0)),
    (10_010, Constant(0)),
    (10_011, Constant(1)),         // large BAR
    (10_012, Constant(1)),         // ASIC revision
    (10_013, Driver(94)),          // waits on memory (64-bit ones)
    (10_014, Constant(1)),         // images
    (10_015, Driver(16)),          // compute units, physical
    (10_016, Constant(1)),         // fine-grained memory
    (10_017, Constant(1_000_000)), // wall clock, kHz
    (10_018, Constant(1)),         // XCCs
    (10_019, Constant(255)),       // vector registers per thread
    (10_020, Constant(0)),         // chip id
];

/// Where attribute `attribute` comes from. Fails with `hipErrorInvalidValue` on numbers HIP does not define.
pub(super) fn source(attribute: i32) -> HipResult<Source> {
    TABLE.iter().find(|row| row.0 == attribute).map(|row| row.1).ok_or(HipError::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attribute_has_one_row() {
        for (i, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..i].iter().all(|other| other.0 != row.0), "{row:?}");
        }
        assert_eq!(source(63), Ok(Driver(16)));
        assert_eq!(source(43), Ok(Driver(22)));
        assert_eq!(source(9999), Err(HipError::INVALID_VALUE));
    }
}
