//! What the page for operators says, held to the program: variables, metrics, units, retention.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{Shop, eventually};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Words of capitals that begin so.
fn words(text: &str, beginning: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with(beginning));
    found
        .filter(|word| word.len() > beginning.len())
        .map(|word| word.trim_end_matches('_').to_owned())
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "bench" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// What a program asks the environment for stands in quotes; what tests of modules make up does not count.
#[test]
fn every_variable_of_the_program_is_on_the_page_and_no_other() {
    let page = read("docs/operate.md");
    let section = page.split("## Environment").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut files = Vec::new();
    for part in ["waypost", "worker", "server", "store", "remote"] {
        sources(&root().join("crates").join(part).join("src"), &mut files);
    }
    let mut asked = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap().replace("'\"'", "");
        for quoted in code.split('"').skip(1).step_by(2).filter(|text| !text.contains(char::is_whitespace)) {
            asked.extend(words(quoted, "WAYPOST_"));
        }
    }
    let told: BTreeSet<String> =
        words(section, "WAYPOST_").into_iter().filter(|name| name != "WAYPOST").collect();
    assert!(asked.contains("WAYPOST_DATABASE_URL_FILE") && asked.contains("WAYPOST_OUTPUT"), "{asked:?}");
    assert_eq!(told, asked);
}

#[test]
fn alert_rules_are_about_series_that_a_server_shows() {
    let shop = Shop::new();
    fs::write(shop.path("waypost.toml"), "[[schedule]]\nname = 'a'\ncadence = '1h'\nexec = ['true']\n")
        .unwrap();
    let (_server, url) = shop.serve(&["serve", "--allow-commands"]);
    shop.ok(&["run", "start", "--", "true"]);
    // Queues are shown while something is in them.
    shop.ok(&["run", "start", "--queue", "nobody-works-it", "--", "true"]);
    let rules = read("docs/examples/operate/alerts.yml");
    let used: BTreeSet<String> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .flat_map(|line| words(line, "waypost_"))
        .collect();
    assert!(used.len() > 8, "{used:?}");
    let is_shown = |page: &str, name: &str| {
        page.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])))
    };
    // Ratios are there once something has ended.
    eventually("all of them are shown", Duration::from_secs(60), || {
        let page = shop.page(&url, "/metrics");
        let missing: Vec<&String> = used.iter().filter(|name| !is_shown(&page, name)).collect();
        if !missing.is_empty() {
            eprintln!("missing: {missing:?}");
        }
        missing.is_empty()
    });
}

/// Where systemd is installed: it knows its own words best.
#[test]
fn the_unit_is_one_that_systemd_takes() {
    let unit = root().join("docs/examples/operate/waypost.service");
    let text = read("docs/examples/operate/waypost.service");
    for line in ["KillMode=mixed", "Restart=always", "ExecStart=/usr/local/bin/waypost serve"] {
        assert!(text.contains(line), "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("waypost.service");
    // Only the program is not where the unit says.
    fs::write(
        &copy,
        fs::read_to_string(unit).unwrap().replace("/usr/local/bin/waypost", crate::support::WAYPOST),
    )
    .unwrap();
    let Ok(verified) = Command::new("systemd-analyze").arg("verify").arg(&copy).output() else { return };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(!said.contains("waypost.service:"), "{said}");
}

/// The command of the unit is one that this program understands.
#[test]
fn the_units_command_is_one_of_this_program() {
    let text = read("docs/examples/operate/waypost.service");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/waypost ")).unwrap();
    let args: Vec<&str> = line.split_whitespace().chain(["--help"]).collect();
    Shop::new().ok(&args);
}

/// The proxy asks the server that the unit starts, and neither buffers nor cuts what waits.
#[test]
fn the_proxy_leads_to_the_units_server() {
    let (proxy, unit) =
        (read("docs/examples/operate/nginx.conf"), read("docs/examples/operate/waypost.service"));
    let listens = unit.split("--listen ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    for line in
        [&format!("proxy_pass http://{listens};"), "proxy_buffering off;", "proxy_set_header Host $host;"]
    {
        assert!(proxy.contains(line), "{line}");
    }
    assert!(unit.contains("--require-tokens"), "behind a proxy everybody comes from loopback");
}

// proves X11
#[test]
fn a_file_says_how_long_runs_are_kept_and_people_are_told() {
    // Whoever prunes: a server without a worker does too.
    for (shop, serve) in [(Shop::new(), &["serve", "--no-worker"][..]), (Shop::on_postgres(), &["serve"])] {
        let file =
            "[retention.deploy]\nsuccess = \"7d\"\n\n[retention.cron]\nsuccess = \"2d\"\nfailure = \"3d\"\n";
        fs::write(shop.path("waypost.toml"), file).unwrap();
        {
            let (_server, _url) = shop.serve(serve);
            let shown = shop.ok(&["lifecycle", "show", "deploy"]);
            assert!(shown.contains("success 7d, failure as the lifecycle says"), "{shown}");
            let found: serde_json::Value =
                serde_json::from_str(&shop.run(&["doctor", "-o", "json"]).out).unwrap();
            let found = found.as_array().unwrap().iter().find(|it| it["what"] == "retention").unwrap();
            assert_eq!(
                found["found"],
                "cron: success 2d, failure 3d; deploy: success 7d, failure as the lifecycle says"
            );
        }
        // Without the file nothing is taken back; with an empty one all is.
        fs::write(shop.path("waypost.toml"), "").unwrap();
        let (_server, _url) = shop.serve(&["serve"]);
        assert!(!shop.ok(&["lifecycle", "show", "deploy"]).contains("kept as"));
    }
    let shop = Shop::new();
    fs::write(
        shop.path("waypost.toml"),
        "\n[retention.deplo]\nsuccess = \"7d\"\n[retention.job]\nfailed = \"1d\"\nsuccess = \"soon\"\n",
    )
    .unwrap();
    shop.run(&["schedule", "apply", "waypost.toml", "--check"])
        .expect(2, &["waypost.toml:5", "failed", "success"]);
    fs::write(shop.path("waypost.toml"), "\n[retention.deplo]\nsuccess = \"7d\"\n").unwrap();
    shop.run(&["serve", "--listen", "127.0.0.1:0"]).expect(2, &["waypost.toml:2", "deplo", "deploy"]);
}
