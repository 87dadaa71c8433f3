//! Databases that cannot be used: said clearly, and left as they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rusqlite::Connection;

use crate::support::{Ran, Shop, WAYPOST, surround};

const START: &[&str] = &["run", "start", "--", "true"];

/// Anybody without rights; 65534 is `nobody` everywhere.
const NOBODY: u32 = 65_534;

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let shop = Shop::new();
    fs::create_dir(shop.path(".waypost")).unwrap();
    let text = "my diary, much longer than a header. ".repeat(200);
    fs::write(shop.database(), &text).unwrap();
    for args in [START, &["run", "list"], &["verify"]] {
        shop.run(args).expect(1, &["waypost.db", "not a database"]);
    }
    assert_eq!(fs::read_to_string(shop.database()).unwrap(), text);
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let shop = Shop::new();
    fs::create_dir(shop.path(".waypost")).unwrap();
    Connection::open(shop.database()).unwrap().execute_batch("CREATE TABLE notes (text)").unwrap();
    shop.run(START).expect(1, &["waypost.db", "another program"]);
    let tables = "SELECT group_concat(name) FROM sqlite_master";
    let found: String =
        Connection::open(shop.database()).unwrap().query_row(tables, [], |row| row.get(0)).unwrap();
    assert_eq!(found, "notes");
}

#[test]
fn a_newer_database_asks_for_a_newer_binary() {
    let shop = Shop::new();
    shop.queue(&[], "true");
    let version = |sql: &str| Connection::open(shop.database()).unwrap().execute_batch(sql).unwrap();
    version("PRAGMA user_version = 999");
    shop.run(START).expect(1, &["newer waypost", "999", "upgrade"]);
    version("PRAGMA user_version = 1");
    assert_eq!(shop.runs().len(), 1);
}

#[test]
fn places_that_are_none_are_named() {
    let shop = Shop::new();
    fs::write(shop.path("file"), "").unwrap();
    let inside_a_file = format!("sqlite://{}", shop.path("file/waypost.db").display());
    let a_folder = format!("sqlite://{}", shop.folder().display());
    for (url, code, words) in [
        (inside_a_file.as_str(), 1, ["not available", "file"]),
        (a_folder.as_str(), 1, ["cannot be opened", "waypost-cli-"]),
        ("postgres://me:secret@nowhere.invalid/waypost", 1, ["not available", "address"]),
        ("postgres://me:secret@db:port/waypost", 1, ["cannot be used", "address"]),
        ("mysql://me:secret@db/waypost", 2, ["database-url", "mysql"]),
        ("waypost.db", 2, ["database-url", "sqlite:///"]),
        ("sqlite://", 2, ["database-url", "sqlite:///"]),
    ] {
        let ran = shop.run(&["--database-url", url, "run", "list"]);
        ran.expect(code, &words);
        assert!(!ran.err.contains("secret"), "a password is repeated: {}", ran.err);
    }
}

// proves U13: whoever may write to a folder that somebody works in does not get anything executed there
#[test]
fn a_database_that_nobody_named_is_ones_own() {
    let shop = Shop::new();
    fs::create_dir(shop.path(".waypost")).unwrap();
    std::os::unix::fs::symlink("elsewhere.db", shop.database()).unwrap();
    shop.run(START).expect(1, &["is a link to a file that is not there", "--database-url sqlite:"]);
    assert!(!shop.path(".waypost/elsewhere.db").exists());
    fs::remove_file(shop.database()).unwrap();
    shop.ok(START);
    // Only root can give a folder away.
    if fs::metadata(shop.folder()).unwrap().uid() == 0 {
        std::os::unix::fs::chown(shop.path(".waypost"), Some(NOBODY), Some(NOBODY)).unwrap();
        shop.run(START).expect(1, &["belongs to another user (65534)"]);
        shop.run(&["run", "list"]).expect(1, &["belongs to another user"]);
        shop.ok(&["--database-url", "sqlite:.waypost/waypost.db", "run", "list"]);
    }
}

#[test]
fn a_read_only_database_is_named_as_one() {
    let shop = Shop::new();
    shop.queue(&[], "true");
    // Permissions do not bind root: the command is copied to where `nobody` can reach it, and run as `nobody`.
    let binary = shop.path("waypost");
    // By another process: a file that a fork of this one has open for writing cannot be executed.
    assert!(Command::new("cp").arg(WAYPOST).arg(&binary).status().unwrap().success());
    let mode =
        |path: &std::path::Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(shop.folder(), 0o555);
    mode(&shop.path(".waypost"), 0o555);
    mode(&shop.database(), 0o444);
    let mut command = Command::new(&binary);
    surround(&mut command, shop.folder());
    if fs::metadata(shop.folder()).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let ran = Ran::from(command.args(START).output().unwrap());
    mode(shop.folder(), 0o755);
    mode(&shop.path(".waypost"), 0o755);
    mode(&shop.database(), 0o644);
    ran.expect(1, &["the database is not available", "read-only", "permissions"]);
    assert_eq!(shop.runs().len(), 1);
    shop.verifies();
}

/// A limit on the size of files is the full disk that needs no disk of its own.
#[test]
fn a_full_database_takes_nothing_more_and_stays_whole() {
    let shop = Shop::new();
    shop.queue(&[], "true");
    let script = format!("trap '' XFSZ; ulimit -f 300; exec '{WAYPOST}' run start --input a=$1 -- true");
    let large = "x".repeat(120_000);
    let mut taken = 1;
    let mut refused = None;
    while refused.is_none() && taken < 50 {
        let mut command = Command::new("sh");
        surround(&mut command, shop.folder());
        let ran = Ran::from(command.args(["-c", &script, "sh", &large]).output().unwrap());
        if ran.code == Some(0) { taken += 1 } else { refused = Some(ran) }
    }
    refused.expect("the limit is reached").expect(1, &["not available"]);
    assert_eq!(shop.runs().len(), taken, "what was answered is there, what was refused is not");
    shop.verifies();
    shop.queue(&["--idempotency-key", "room again"], "true");
}
