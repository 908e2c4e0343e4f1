//! Kernel tables.
#![no_main]

use hrr_format::kernel_table::KernelTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let table = KernelTable::parse(data);
    for kernel in table.kernels() {
        assert_eq!(table.get(kernel.kernel), Some(kernel));
        let _ = (kernel.explicit_bytes(), kernel.pointer_args().count(), kernel.to_line());
    }
});
