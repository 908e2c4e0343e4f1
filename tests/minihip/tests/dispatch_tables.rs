//! Tools that take over entries of the dispatch tables see every call of the exported names.

mod common;

use common::hip;
use std::path::Path;
use std::process::Command;

/// Adds 42 to what hipGetDevice (entry 102) answers.
const TOOL: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef int (*get_device)(int*);
static get_device original;
static int replacement(int* device) { int code = original(device); *device += 42; return code; }
int rocprofiler_set_api_table(const char* name, uint64_t version, uint64_t instance, void** tables, uint64_t count) {
  uint64_t* table = tables[0];
  if (count != 1 || instance != 0 || version < 70000) abort();
  if (strcmp(name, "hip_compiler") == 0) { if (table[0] != 8 * 9 + 8) abort(); return 0; }
  if (strcmp(name, "hip") != 0 || table[0] != 8 * 546 + 8) abort();
  original = (get_device)table[1 + 102];
  table[1 + 102] = (uint64_t)replacement;
  return 0;
}
"#;

#[test]
#[ignore = "the child of the next test"]
fn asks_for_its_device() {
    let (hip, _alone) = hip();
    let mut device = -1;
    assert_eq!((hip.hipSetDevice(0), hip.hipGetDevice(&mut device)), (0, 0));
    assert_eq!(device, 42);
}

#[test]
fn a_tool_named_in_the_environment_takes_over_entries() {
    let (hip, _alone) = hip();
    let mut device = -1;
    assert_eq!(hip.hipGetDevice(&mut device), 0);
    assert_eq!(device, 0, "no tool here");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, tool) = (directory.join("dispatch_tool.c"), directory.join("dispatch_tool.so"));
    std::fs::write(&source, TOOL).expect("writable target directory");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&tool, &source]).status();
    assert!(built.expect("a C compiler is there").success());
    let child = |variable: &str| {
        let output = Command::new(std::env::current_exe().expect("known"))
            .args(["asks_for_its_device", "--exact", "--ignored"])
            .env(variable, &tool)
            .output()
            .expect("starts");
        output.status.success()
    };
    assert!(child("ROCPROFILER_REGISTER_LIBRARY"));
    assert!(!child("SOME_OTHER_VARIABLE"), "without the tool the answer is 0");
    assert!(!child("LD_PRELOAD"), "a preloaded library is a tool only if it says so");
}
