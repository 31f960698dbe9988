//! Chromium over the plain HTTP of WebDriver, and axe-core in its pages.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running chromedriver with one session.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The session ends the browser; the driver has no other child.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.call("DELETE", "", &Value::Null)));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Starts the driver on a free port, and a browser without a window.
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}"));
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("chromedriver prints its port")));
        let mut browser = Browser { driver, address, session: String::new(), _profile: profile };
        // The user root and most containers have no sandbox.
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--force-color-profile=srgb",
            "--window-size=1280,900",
            format!("--user-data-dir={}", browser._profile.path().display())
        ]);
        let wanted = json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments } } } });
        let session = browser.request("POST", "/session", &wanted);
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        use std::io::Write as _;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        // The driver keeps the connection open.
        let mut reader = BufReader::new(stream);
        let mut header = String::new();
        while !header.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut header).unwrap() > 0, "{method} {path}: {header}");
        }
        let length = header.lines().find_map(|line| {
            let (name, length) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| length.trim().parse().unwrap())
        });
        let mut body = vec![0; length.unwrap()];
        reader.read_exact(&mut body).unwrap();
        let value: Value = serde_json::from_slice(&body).unwrap();
        assert!(header.starts_with("HTTP/1.1 200"), "{method} {path}: {value}");
        value["value"].clone()
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.request(method, &format!("{}{path}", self.session), body)
    }

    /// Opens an address.
    pub fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script and returns its value.
    pub fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script that passes its result to its last argument.
    pub fn wait_for(&self, script: &str) -> Value {
        self.call("POST", "/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Calls a command of the browser's developer tools.
    pub fn tools(&self, command: &str, parameters: &Value) -> Value {
        self.call("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Sets the medium (`screen`, `print`) and the colour scheme (`light`, `dark`).
    pub fn set_media(&self, medium: &str, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.tools("Emulation.setEmulatedMedia", &json!({ "media": medium, "features": features }));
    }

    /// Sets the width of the window in pixels of the page, and the zoom.
    pub fn set_width(&self, width: u32, zoom: u32) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": zoom, "mobile": false });
        self.tools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Presses a key of the keyboard.
    pub fn press(&self, key: &str) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        self.call("POST", "/actions", &json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": keys }] }));
    }

    /// Waits until the browser shows an address of the page. Panics after ten seconds.
    pub fn wait_for_address(&self, address: &str) {
        let mut shown = Value::Null;
        for _ in 0..200 {
            shown = self.call("GET", "/url", &Value::Null);
            if shown.as_str().is_some_and(|url| url.ends_with(address)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{shown} instead of {address}");
    }

    /// Writes a picture of the whole page.
    pub fn picture(&self, to: &Path) {
        let picture = self.tools("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        std::fs::write(to, BASE64.decode(picture["data"].as_str().unwrap().as_bytes()).unwrap()).unwrap();
    }

    /// Returns the violations that axe-core finds: rule, and the first place.
    pub fn violations(&self, axe: &str) -> Vec<String> {
        self.run(axe);
        let found = self.wait_for(
            "const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] }).then(\
             r => done(r.violations.map(v => v.id + ': ' + v.nodes[0].html + ' ' + v.nodes[0].failureSummary)), e => done([String(e)]))",
        );
        found.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }
}

/// Installs axe-core with npm into a directory, and returns its script.
pub fn axe(directory: &Path) -> String {
    let status = Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .arg(directory)
        .arg("axe-core@4")
        .stdin(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "npm install axe-core");
    let script: PathBuf = directory.join("node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(script).unwrap()
}
