//! A browser with a profile of its own, driven by WebDriver, and what went wrong in it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::SOON;

/// What WebDriver calls the id of an element by.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub struct Browser {
    driver: Child,
    /// Of the session, at the driver.
    session: String,
    base: String,
    _profile: TempDir,
}

impl Drop for Browser {
    /// The driver and the browser that it started are one group.
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.driver.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.driver.wait();
    }
}

fn start_driver() -> (Child, String) {
    let mut command = Command::new("chromedriver");
    command
        .arg("--port=0")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut driver = command.spawn().expect("chromedriver: scripts/test installs chromium-driver");
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let rest = line.strip_prefix("ChromeDriver was started successfully on port ")?;
        rest.trim_end_matches('.').parse::<u16>().ok()
    });
    thread::spawn(move || lines.for_each(drop));
    (driver, format!("http://127.0.0.1:{}", port.expect("chromedriver says which port it has")))
}

/// What the driver answers: the value, or the error's name and words.
fn ask(method: &str, url: &str, body: &Value) -> Result<Value, String> {
    let body = body.to_string();
    let mut words = vec!["-s", "--noproxy", "*", "-X", method, "-H", "content-type: application/json"];
    if method == "POST" {
        // An argument has at most 128 KiB, and scripts have more.
        words.extend(["--data-binary", "@-"]);
    }
    words.push(url);
    let mut curl =
        Command::new("curl").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let _ = curl.stdin.take().unwrap().write_all(body.as_bytes());
    let asked = curl.wait_with_output().unwrap();
    let mut answer: Value =
        serde_json::from_slice(&asked.stdout).map_err(|error| format!("{url}: {error}"))?;
    match answer["value"]["error"].as_str() {
        Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
        None => Ok(answer["value"].take()),
    }
}

impl Browser {
    pub fn open(base: &str) -> Browser {
        Browser::with(base, true)
    }

    pub fn without_scripts(base: &str) -> Browser {
        Browser::with(base, false)
    }

    fn with(base: &str, has_scripts: bool) -> Browser {
        let profile = tempfile::Builder::new().prefix("waypost-chromium-").tempdir().unwrap();
        let (driver, url) = start_driver();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let scripts = if has_scripts { 1 } else { 2 };
        let asked = json!({
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": {
                "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                         "--no-proxy-server", "--window-size=1280,900", folder],
                "prefs": { "profile.managed_default_content_settings.javascript": scripts },
            },
        });
        let asked = json!({ "capabilities": { "alwaysMatch": asked } });
        let opened = ask("POST", &format!("{url}/session"), &asked).expect("a session");
        let session = format!("{url}/session/{}", opened["sessionId"].as_str().unwrap());
        Browser { driver, session, base: base.to_owned(), _profile: profile }
    }

    fn post(&self, command: &str, body: &Value) -> Result<Value, String> {
        ask("POST", &format!("{}/{command}", self.session), body)
    }

    pub fn goto(&self, path: &str) {
        self.post("url", &json!({ "url": format!("{}{path}", self.base) })).unwrap();
    }

    pub fn execute(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": [] })).unwrap()
    }

    /// The same of a script whose last argument is called with what it comes to.
    pub fn execute_async(&self, script: &str) -> Value {
        self.post("execute/async", &json!({ "script": script, "args": [] })).unwrap()
    }

    /// In every page from now on, whatever its policy says: the page itself loads nothing.
    pub fn inject(&self, script: &str) {
        self.cdp("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script }));
    }

    fn cdp(&self, command: &str, params: &Value) {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": params })).unwrap();
    }

    pub fn width(&self, width: u32) {
        let params = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.cdp("Emulation.setDeviceMetricsOverride", &params);
    }

    pub fn prefer(&self, scheme: &str) {
        let params = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.cdp("Emulation.setEmulatedMedia", &params);
    }

    /// Tries until it works: pages load, and their parts are renewed, while one looks.
    #[track_caller]
    fn soon<T>(&self, what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
        let begun = Instant::now();
        loop {
            match attempt() {
                Ok(found) => return found,
                Err(error) if begun.elapsed() > SOON => {
                    let body = self.find("body").unwrap();
                    let page = ask("GET", &format!("{}/element/{body}/text", self.session), &Value::Null);
                    panic!("{what}: {error}\n{}", page.unwrap_or_default())
                }
                Err(_) => thread::yield_now(),
            }
        }
    }

    fn find(&self, css: &str) -> Result<String, String> {
        let found = self.post("element", &json!({ "using": "css selector", "value": css }))?;
        Ok(found[ELEMENT].as_str().unwrap().to_owned())
    }

    fn all(&self, css: &str) -> Result<Vec<String>, String> {
        let found = self.post("elements", &json!({ "using": "css selector", "value": css }))?;
        Ok(found.as_array().unwrap().iter().map(|it| it[ELEMENT].as_str().unwrap().to_owned()).collect())
    }

    /// Waits until one of the elements that fit has this text in it.
    #[track_caller]
    pub fn sees(&self, css: &str, text: &str) {
        self.soon(&format!("{css} with {text:?}"), || {
            for element in self.all(css)? {
                let path = format!("{}/element/{element}/property/textContent", self.session);
                if ask("GET", &path, &Value::Null)?.as_str().is_some_and(|has| has.contains(text)) {
                    return Ok(());
                }
            }
            Err("is not there".to_owned())
        });
    }

    #[track_caller]
    pub fn click(&self, css: &str) {
        self.soon(css, || self.post(&format!("element/{}/click", self.find(css)?), &json!({})));
    }

    #[track_caller]
    pub fn fill(&self, css: &str, text: &str) {
        self.soon(css, || {
            let element = self.find(css)?;
            self.post(&format!("element/{element}/clear"), &json!({}))?;
            self.post(&format!("element/{element}/value"), &json!({ "text": text }))
        });
    }

    /// Typed wherever the focus is.
    pub fn keys(&self, text: &str) {
        let down_and_up = |key: char| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let keys: Vec<Value> = text.chars().flat_map(down_and_up).collect();
        self.post("actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] }))
            .unwrap();
    }

    pub fn count(&self, css: &str) -> usize {
        self.all(css).unwrap().len()
    }

    pub fn path(&self) -> String {
        let url = ask("GET", &format!("{}/url", self.session), &Value::Null).unwrap();
        url.as_str().unwrap().strip_prefix(&self.base).unwrap().to_owned()
    }

    /// How many pixels the page is wider than its window.
    pub fn overhang(&self) -> i64 {
        let measure = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        self.execute(measure).as_i64().unwrap()
    }

    /// Nothing went wrong: no error on the console, no violated policy.
    #[track_caller]
    pub fn is_clean(&self) {
        self.is_clean_but_for(&[]);
    }

    /// The same where the server was to refuse something with one of these.
    #[track_caller]
    pub fn is_clean_but_for(&self, statuses: &[&str]) {
        let log = self.post("se/log", &json!({ "type": "browser" })).unwrap();
        let bad = log.as_array().expect("a log").iter().filter(|entry| entry["level"] == "SEVERE");
        let is_refusal = |entry: &&Value| {
            let text = entry["message"].as_str().unwrap_or_default();
            statuses.iter().any(|status| text.contains(&format!("responded with a status of {status} ")))
        };
        let bad = bad.filter(|entry| !is_refusal(entry));
        let bad: Vec<&Value> = bad.collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}
