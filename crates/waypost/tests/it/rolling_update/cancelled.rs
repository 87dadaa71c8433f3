//! A cancel at every place of a run: HA is as it was, hosts are out of maintenance mode, machines run.

use std::fs;
use std::process::Command;

use tempfile::TempDir;
use waypost_simulate::{Do, Fault, Site};

use super::stage::{LONG, is_as_it_was};
use super::whole::{Point, Whole, changes, site, ways};
use crate::support::{Shop, eventually};

/// Sets a run going, cancels it where it hangs, and looks what is left.
async fn cancel_at(whole: &Whole, point: &Point, go: impl FnOnce() -> String) {
    let armed = whole.arm(&point.fault);
    let run_id = &go();
    whole.until_hanging(&point.fault, armed);
    whole.shop.ok(&["run", "cancel", run_id, "--reason", "not today"]);
    // A cleanup is not stopped: it ends, and the run with it.
    if point.step.starts_with("cleanup") {
        whole.release();
    }
    whole.until(run_id, "cancelled").await;
    whole.release();
    let site = whole.stage.site();
    is_as_it_was(&site, &whole.before);
    for host in &site.hosts {
        let expected = if host.starts == 0 { "2.19.1" } else { "2.21.2" };
        assert_eq!((host.version_of("159"), host.starts < 2), (Some(expected), true), "{point:?}: {host:?}");
        assert!(whole.stage.count("UpdateService.SimpleUpdate", &host.name) <= 1, "{point:?}");
    }
    assert_eq!(site.host("esx3").unwrap().starts, 0, "{point:?}");
    whole.nothing_crashed();
    whole.shop.verifies();
    let steps = whole.steps(run_id).await;
    let is_over = |step: &String| ["completed", "skipped", "failed"].iter().any(|end| step.ends_with(end));
    assert!(steps.iter().all(is_over), "{point:?}: {steps:?}");
}

fn resumed(whole: &Whole, run_id: &str) -> String {
    whole.resume(run_id);
    run_id.to_owned()
}

/// A paused run, to come back to again and again.
struct Saved {
    site: Site,
    folder: TempDir,
}

impl Saved {
    /// A copy of the database by SQLite's own hand: a file that somebody is still closing cannot be copied otherwise.
    fn of(whole: &Whole) -> Saved {
        let folder = tempfile::tempdir().unwrap();
        let backup = format!(".backup '{}'", folder.path().join("waypost.db").display());
        eventually("the database is free to be copied", LONG, || {
            let copied = Command::new("sqlite3").arg(whole.shop.database()).arg(&backup).output().unwrap();
            copied.status.success()
        });
        Saved { site: whole.stage.site(), folder }
    }

    /// In a folder of its own.
    fn shop(&self) -> Shop {
        let shop = Shop::new();
        fs::create_dir(shop.path(".waypost")).unwrap();
        fs::copy(self.folder.path().join("waypost.db"), shop.database()).unwrap();
        shop
    }
}

// proves J6
#[tokio::test]
async fn a_run_may_be_cancelled_at_every_place_before_its_pause() {
    for point in changes(ways(Shop::new()).await.to_the_pause) {
        let whole = Whole::of(Shop::new(), &site());
        let _worker = whole.worker();
        cancel_at(&whole, &point, || whole.start()).await;
    }
}

/// One of three parts of the way, since it is long.
async fn cancel_after_the_pause(part: usize) {
    let points = changes(ways(Shop::new()).await.to_the_end);
    let mut whole = Whole::of(Shop::new(), &site());
    let run_id = whole.start();
    let mut worker = whole.worker();
    whole.until(&run_id, "paused").await;
    worker.kill();
    let saved = Saved::of(&whole);
    for point in points.chunks(points.len().div_ceil(3)).nth(part).unwrap() {
        whole.shop = saved.shop();
        whole.stage.world.change(|site| site.clone_from(&saved.site)).unwrap();
        let _worker = whole.worker();
        cancel_at(&whole, point, || resumed(&whole, &run_id)).await;
    }
}

// proves J6
#[tokio::test]
async fn a_run_may_be_cancelled_at_every_place_soon_after_its_pause() {
    cancel_after_the_pause(0).await;
}

#[tokio::test]
async fn a_run_may_be_cancelled_at_every_place_in_the_middle() {
    cancel_after_the_pause(1).await;
}

#[tokio::test]
async fn a_run_may_be_cancelled_at_every_place_near_its_end() {
    cancel_after_the_pause(2).await;
}

/// The database's part is small: a few places, far from each other. The soak takes all.
fn places(points: Vec<Point>, apart: usize) -> Vec<Point> {
    let all = std::env::var_os("WAYPOST_CANCEL_EVERYWHERE").is_some();
    let (first, apart) = if all { (0, 1) } else { (apart / 2, apart) };
    changes(points).into_iter().skip(first).step_by(apart).collect()
}

#[tokio::test]
async fn a_run_on_postgres_may_be_cancelled_before_and_after_its_pause() {
    let ways = ways(Shop::on_postgres()).await;
    let (before, after) = (places(ways.to_the_pause, 3), places(ways.to_the_end, 7));
    println!("cancelled at {} places before the pause and {} after it", before.len(), after.len());
    for point in &before {
        let whole = Whole::of(Shop::on_postgres(), &site());
        let _worker = whole.worker();
        cancel_at(&whole, point, || whole.start()).await;
    }
    for point in &after {
        let whole = Whole::of(Shop::on_postgres(), &site());
        let run_id = whole.start();
        let _worker = whole.worker();
        whole.until(&run_id, "paused").await;
        cancel_at(&whole, point, || resumed(&whole, &run_id)).await;
    }
}

// proves J6
#[tokio::test]
async fn a_graceful_cancel_ends_the_run_after_the_present_host() {
    let whole = Whole::of(Shop::new(), &site());
    let run_id = whole.start();
    let _worker = whole.worker();
    whole.until(&run_id, "paused").await;
    let slow = Fault::new("ComputerSystem.Reset", Do::Delay { ms: 2_000 }).on("esx2");
    whole.stage.world.set_faults(&[slow]).unwrap();
    whole.resume(&run_id);
    eventually("esx2 is under way", LONG, || whole.stage.count("UpdateService.SimpleUpdate", "esx2") == 1);
    whole.shop.ok(&["run", "cancel", &run_id, "--graceful"]);
    whole.until(&run_id, "cancelled").await;
    whole.is_updated(&["esx2"]);
}

#[tokio::test]
async fn a_paused_run_is_cancelled_at_once() {
    let whole = Whole::of(Shop::new(), &site());
    let run_id = whole.start();
    let _worker = whole.worker();
    whole.until(&run_id, "paused").await;
    whole.shop.ok(&["run", "cancel", &run_id]);
    assert_eq!(whole.shop.show(&run_id)["status"], "cancelled");
    whole.is_updated(&[]);
}
