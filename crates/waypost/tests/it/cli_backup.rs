//! Copies: of a file as it lies there, by `backup` while others work, and put back elsewhere.
// proves U7

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use crate::support::{Shop, eventually};

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_file_that_nobody_has_open_is_whole_and_its_owners_alone() {
    let shop = Shop::new();
    let id = shop.queue(&[], "true");
    assert!(!shop.path(".waypost/waypost.db-wal").exists(), "the log is in the file");
    assert_eq!((mode(&shop.path(".waypost")), mode(&shop.database())), (0o700, 0o600));
    assert_eq!(fs::read_to_string(shop.path(".waypost/.gitignore")).unwrap(), "*\n");
    let (_worker, _) = shop.serve(&["serve"]);
    for file in ["waypost.db-wal", "waypost.db-shm"] {
        assert_eq!(mode(&shop.path(".waypost").join(file)), 0o600, "{file}");
    }

    let elsewhere = Shop::new();
    fs::create_dir(elsewhere.path(".waypost")).unwrap();
    fs::copy(shop.database(), elsewhere.database()).unwrap();
    assert_eq!(elsewhere.show(&id)["status"], "queued");
    elsewhere.verifies();
}

/// A folder that was there is left as it is.
#[test]
fn a_folder_of_ones_own_keeps_its_rights() {
    let shop = Shop::new();
    let before = mode(shop.folder());
    let url = format!("sqlite://{}", shop.path("mine.db").display());
    shop.ok(&["--database-url", &url, "run", "start", "--", "true"]);
    assert_eq!((mode(shop.folder()), mode(&shop.path("mine.db"))), (before, 0o600));
    assert!(!shop.path(".gitignore").exists());
}

#[test]
fn a_backup_is_made_while_others_work_and_goes_on_elsewhere() {
    let shop = Shop::new();
    let (_server, _) = shop.serve(&["serve", "--allow-commands"]);
    let done = shop.queue(&[], "echo kept");
    eventually("it is worked", Duration::from_secs(60), || shop.show(&done)["status"] == "success");
    let waits = shop.queue(&["--queue", "later"], "echo later");
    let said = shop.json(&["backup", "copy.db"]);
    // The server has runs of its own: pruning is one.
    assert!(said["runs"].as_u64().unwrap() >= 2, "{said}");
    assert_eq!(said["bytes"], fs::metadata(shop.path("copy.db")).unwrap().len());
    assert_eq!(mode(&shop.path("copy.db")), 0o600);
    shop.queue(&[], "echo after the copy");
    shop.run(&["backup", "copy.db"]).expect(2, &["copy.db is there already"]);

    let elsewhere = Shop::new();
    let copy = shop.path("copy.db");
    let copy = copy.to_str().unwrap();
    let said = elsewhere.ok(&["restore", copy]);
    assert!(said.contains("the log and the rows agree"), "{said}");
    assert_eq!(elsewhere.runs().iter().filter(|run| run["lifecycle"] == "deploy").count(), 2);
    assert!(elsewhere.ok(&["run", "logs", &done]).contains("kept"));
    let _worker = elsewhere.spawn(&["worker", "--allow-commands", "--queue", "later"]);
    eventually("it goes on", Duration::from_secs(60), || elsewhere.show(&waits)["status"] == "success");
    elsewhere.verifies();
}

#[test]
fn a_database_is_replaced_only_if_that_is_meant_and_nobody_uses_it() {
    let shop = Shop::new();
    let first = shop.queue(&[], "true");
    shop.ok(&["backup", "copy.db"]);
    let second = shop.queue(&[], "true");
    shop.run(&["restore", "copy.db"]).expect(2, &["is there already", "--replace"]);
    {
        let (_server, _) = shop.serve(&["serve"]);
        shop.run(&["restore", "copy.db", "--replace"]).expect(1, &["a process has it open", "stop servers"]);
        assert_eq!(shop.runs().len(), 2);
    }
    let said = shop.ok(&["restore", "copy.db", "--replace"]);
    assert!(said.contains("what was there is"), "{said}");
    assert_eq!(shop.runs().len(), 1);
    assert_eq!(shop.show(&first)["status"], "queued");
    let kept = fs::read_dir(shop.path(".waypost")).unwrap().map(|entry| entry.unwrap().file_name());
    let kept = kept.filter_map(|name| name.into_string().ok()).find(|name| name.contains("before-")).unwrap();
    let url = format!("sqlite://{}", shop.path(".waypost").join(kept).display());
    shop.ok(&["--database-url", &url, "run", "show", &second]);
}

/// A log without its file is another database's: it would be taken for the copy's and destroy it.
#[test]
fn a_copy_is_not_put_beside_the_log_of_a_file_that_is_gone() {
    let shop = Shop::new();
    shop.queue(&[], "true");
    shop.ok(&["backup", "copy.db"]);
    {
        let (mut server, _) = shop.serve(&["serve", "--no-worker"]);
        shop.queue(&[], "echo in the log");
        server.kill();
    }
    fs::rename(shop.database(), shop.path("gone.db")).unwrap();
    shop.run(&["restore", "copy.db"]).expect(1, &["waypost.db-wal", "without its database"]);
    assert!(!shop.database().exists());
    // Where it belongs it is taken in, and the place is free.
    for log in ["-wal", "-shm"] {
        let _ =
            fs::rename(shop.path(&format!(".waypost/waypost.db{log}")), shop.path(&format!("gone.db{log}")));
    }
    let url = format!("sqlite://{}", shop.path("gone.db").display());
    assert_eq!(shop.json(&["--database-url", &url, "run", "list"]).as_array().unwrap().len(), 2);
    shop.ok(&["restore", "copy.db"]);
    assert_eq!(shop.runs().len(), 1);
}

#[test]
fn what_cannot_be_opened_any_more_is_replaced_and_kept() {
    let shop = Shop::new();
    let id = shop.queue(&[], "true");
    shop.ok(&["backup", "copy.db"]);
    fs::write(shop.database(), "no database, but as long as the header of one. ".repeat(100)).unwrap();
    fs::set_permissions(shop.database(), fs::Permissions::from_mode(0o640)).unwrap();
    fs::rename(shop.database(), shop.path("real.db")).unwrap();
    std::os::unix::fs::symlink(shop.path("real.db"), shop.database()).unwrap();
    shop.ok(&["restore", "copy.db", "--replace"]);
    assert_eq!(shop.show(&id)["status"], "queued");
    assert_eq!(mode(&shop.path("real.db")), 0o640, "the file behind the link, with its rights");
    shop.verifies();
}

#[test]
fn what_is_no_copy_is_refused_and_nothing_is_left() {
    let shop = Shop::new();
    fs::write(shop.path("text.db"), "not a database at all, but long enough to be looked at. ".repeat(100))
        .unwrap();
    rusqlite::Connection::open(shop.path("other.db")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    for (args, code, words) in [
        (&["restore", "none.db"][..], 2, "there is no such file"),
        (&["restore", "."], 2, "it is a folder: name a file"),
        (&["backup", "copy.db"], 2, "there is no such file"),
        (&["restore", "text.db"], 1, "not a database"),
        (&["restore", "other.db"], 1, "no database of waypost"),
        (&["backup", "no/folder/copy.db"], 2, "there is no such file"),
    ] {
        shop.run(args).expect(code, &[words]);
    }
    shop.queue(&[], "true");
    shop.run(&["backup", "no/folder/copy.db"]).expect(2, &["FILE", "there is no folder no/folder"]);
    let mut names: Vec<String> = fs::read_dir(shop.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".waypost", "other.db", "text.db"]);
}

/// The commands that are named are tried, and what they make goes on.
#[test]
fn postgresql_is_copied_with_the_commands_that_are_named() {
    let shop = Shop::on_postgres();
    let id = shop.queue(&[], "true");
    let told = |args: &[&str], command: &str| {
        let ran = shop.run(args);
        ran.expect(2, &[command]);
        ran.err.lines().find(|line| line.contains(command)).unwrap().trim().to_owned()
    };
    let copy = shop.path("copy.dump");
    let copy = copy.to_str().unwrap();
    let dump = told(&["backup", copy], "pg_dump");
    let restore = told(&["restore", copy], "pg_restore");
    let database = waypost_testkit::Postgres::start().unwrap();
    let empty = Shop::at(&database.url());
    for (command, url) in [(dump, shop.database_url()), (restore, empty.database_url())] {
        let ran =
            Command::new("sh").args(["-c", &command]).env("WAYPOST_DATABASE_URL", url).output().unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    empty.verifies();
    let _worker = empty.spawn(&["worker", "--allow-commands"]);
    eventually("it goes on", Duration::from_secs(60), || empty.show(&id)["status"] == "success");
    empty.verifies();
}
