//! What others made: AMD's own runtime, and the device code that wheels ship.

#[path = "../c/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use hrr_format::code_object::{ArgKind, TargetImage, signatures, visit_targets};
use hrr_tests::process::run;
use hrr_tests::recording::Scratch;
use hrr_tests::replaying::Replay;
use program::{LIMIT, compile, record};

/// AMD's runtime as Debian packages it (libamdhip64-5 5.2.3).
const REAL_RUNTIME: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";

#[test]
fn failures_of_amds_runtime_without_a_gpu_are_recorded_and_replayed() {
    if !Path::new(REAL_RUNTIME).exists() || Path::new("/dev/kfd").exists() {
        eprintln!("skipped: {REAL_RUNTIME} is missing, or there is a GPU");
        return;
    }
    let scratch = Scratch::new("real");
    let program = compile(&scratch, "no_device", "no_device", &[REAL_RUNTIME]);
    let plain = run(&mut program::command(&program, &[]), LIMIT);
    plain.expect_code(0);
    assert!(plain.stdout.starts_with("0 100 "), "{plain}");
    let recorded = record(&scratch, program::command(&program, &[]));
    recorded.run.expect_code(0);
    assert_eq!(recorded.run.stdout, plain.stdout, "recording changes nothing");
    let archives = recorded.processes();
    let [archive] = &archives[..] else { panic!("one process\n{}", recorded.run) };
    assert!(archive.manifest().complete);
    let codes: Vec<i32> = archive.streams()[0].records().map(|record| record.ret()).collect();
    let printed: Vec<i32> = plain.stdout.split(' ').map_while(|word| word.parse().ok()).collect();
    assert_eq!(codes, printed);
    let replayed = Replay::of(&recorded.root).args(["--hip-lib", REAL_RUNTIME]).run();
    replayed.run.expect_code(0);
}

/// A kernel as llvm-readelf lists it: argument segment, and offset, size and kind of each explicit argument.
type Listed = BTreeMap<String, (u32, Vec<(u32, u32, ArgKind)>)>;

/// Reads llvm-readelf's listing of an image's metadata note, which is YAML of a fixed shape.
fn listed(image: &Path) -> Listed {
    let listing = run(Command::new("llvm-readelf-22").arg("--notes").arg(image), LIMIT);
    listing.expect_code(0);
    let mut found = Listed::new();
    let (mut name, mut bytes) = (String::new(), 0);
    let mut args: Vec<BTreeMap<String, String>> = Vec::new();
    let mut inside = false;
    let finish = |name: &mut String, bytes: u32, args: &mut Vec<BTreeMap<String, String>>, found: &mut Listed| {
        let explicit = std::mem::take(args).into_iter().filter_map(|arg| {
            let kind = ArgKind::explicit(&arg[".value_kind"])?;
            Some((arg[".offset"].parse().unwrap(), arg[".size"].parse().unwrap(), kind))
        });
        let explicit = explicit.collect();
        if !name.is_empty() {
            found.insert(std::mem::take(name), (bytes, explicit));
        }
    };
    for line in listing.stdout.lines() {
        let depth = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim_start().trim_start_matches("- ").split_once(':') else { continue };
        let (item, value) = (line.trim_start().starts_with("- "), value.trim().trim_matches('\''));
        match depth {
            0 => {
                finish(&mut name, bytes, &mut args, &mut found);
                inside = key == "amdhsa.kernels";
            }
            2 | 4 if inside => {
                if item && depth == 2 {
                    finish(&mut name, bytes, &mut args, &mut found);
                }
                match key {
                    ".name" => name = value.to_owned(),
                    ".kernarg_segment_size" => bytes = value.parse().unwrap(),
                    _ => {}
                }
            }
            6 | 8 if inside => {
                if item {
                    args.push(BTreeMap::new());
                }
                if let Some(arg) = args.last_mut() {
                    arg.insert(key.to_owned(), value.to_owned());
                }
            }
            _ => {}
        }
    }
    finish(&mut name, bytes, &mut args, &mut found);
    found
}

/// Fetches a wheel and unpacks it; `None` where it cannot be had.
fn wheel(scratch: &Scratch, package: &str) -> Option<PathBuf> {
    if std::env::var_os("HRR_NET_TESTS").is_none() {
        eprintln!("skipped: HRR_NET_TESTS is not set, so that no package may be fetched");
        return None;
    }
    let dir = scratch.path().join("wheels");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d"]).arg(&dir).arg(package);
    let fetched = run(&mut pip, LIMIT);
    if !fetched.succeeded() {
        eprintln!("skipped: {package} cannot be fetched\n{fetched}");
        return None;
    }
    let file = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    eprintln!("{}", file.file_name().unwrap().to_string_lossy());
    let unpacked = scratch.path().join("unpacked");
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg(&unpacked), LIMIT).expect_code(0);
    Some(unpacked)
}

fn libraries(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            libraries(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "so") {
            found.push(path);
        }
    }
}

/// Compares every kernel of every image in the device code of a package with llvm-readelf's listing; returns how many
/// images and kernels there were.
fn compare(package: &str) -> Option<(usize, usize)> {
    let scratch = Scratch::new("wheel");
    let unpacked = wheel(&scratch, package)?;
    let mut paths = Vec::new();
    libraries(&unpacked, &mut paths);
    let (section, file) = (scratch.path().join("section"), scratch.path().join("image"));
    let (mut images, mut kernels) = (0, 0);
    for path in paths {
        let dump = format!("--dump-section=.hip_fatbin={}", section.display());
        let mut objcopy = Command::new("objcopy");
        // A library without device code has no such section.
        run(objcopy.arg(dump).arg(&path).arg(scratch.path().join("rest")), LIMIT);
        let Ok(bytes) = std::fs::read(&section) else { continue };
        let mut names = std::collections::BTreeSet::new();
        let compare_image = |target: TargetImage<'_>| {
            if target.id.starts_with("host") || target.image.is_empty() {
                return Ok(());
            }
            images += 1;
            std::fs::write(&file, target.image).unwrap();
            let ours: Listed = signatures(target.image)?
                .into_iter()
                .map(|kernel| {
                    let args = kernel.args.iter().map(|arg| (arg.offset, arg.size, arg.kind)).collect();
                    (kernel.name, (kernel.kernarg_bytes, args))
                })
                .collect();
            let theirs = listed(&file);
            assert_eq!(ours, theirs, "{} {}", path.display(), target.id);
            names.extend(theirs.into_keys());
            Ok(())
        };
        visit_targets(&bytes, compare_image).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // The section as a whole, as a program that registers it is recorded.
        let whole: std::collections::BTreeSet<String> =
            signatures(&bytes).unwrap().into_iter().map(|kernel| kernel.name).collect();
        assert_eq!(whole, names, "{}", path.display());
        kernels += whole.len();
        std::fs::remove_file(&section).unwrap();
    }
    eprintln!("{package}: {images} images, {kernels} kernels");
    Some((images, kernels))
}

#[test]
fn device_code_of_gafime_is_read_as_llvm_reads_it() {
    if let Some((images, kernels)) = compare("gafime-rocm") {
        assert!(images >= 12 && kernels > 0);
    }
}

#[test]
fn device_code_of_bitsandbytes_is_read_as_llvm_reads_it() {
    if let Some((images, kernels)) = compare("bitsandbytes") {
        assert!(images >= 12 && kernels > 0);
    }
}
