//! The kernel depends on this crate, so it is as pure: it neither looks at the world nor changes it.

use std::fs;
use std::path::Path;

const DEPENDENCIES: [&str; 2] = ["serde_json", "toml"];
const FOREIGN: [&str; 8] =
    ["std::time", "std::fs", "std::net", "std::thread", "std::env", "std::process", "SystemTime", "tokio"];

#[test]
fn it_depends_on_two_crates_and_names_no_clock_disk_or_network() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dependencies]\n").nth(1).unwrap();
    let names = dependencies.lines().take_while(|line| !line.is_empty());
    assert_eq!(names.map(|line| line.split('.').next().unwrap()).collect::<Vec<_>>(), DEPENDENCIES);
    let mut folders = vec![root.join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&path).unwrap();
            for word in FOREIGN {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
    }
    assert!(files > 10, "the sources were not found");
}
