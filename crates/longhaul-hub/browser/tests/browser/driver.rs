//! A Chromium with its driver, and waits for the contents of a page.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use thirtyfour::prelude::*;

/// The limit on every wait; browsers are slow on a loaded machine.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(200);

/// A browser. Its processes end when the value is dropped.
pub(super) struct Browser {
    pub(super) driver: WebDriver,
    base: String,
    child: Child,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browsers; `quit` does it in time if the test passes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the driver on a free port, and returns the port.
fn start_driver() -> (Child, u16) {
    let started = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn();
    let mut child = started.unwrap_or_else(|error| {
        panic!("chromedriver: {error}; run: apt-get install chromium chromium-driver")
    });
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("successfully on port")).expect("a port");
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    // The driver stops if nobody reads its output.
    std::thread::spawn(move || lines.for_each(drop));
    (child, digits.parse().unwrap())
}

impl Browser {
    /// Starts a browser of a width in CSS pixels that shows the hub at `port`. It runs scripts if
    /// `script` is true.
    pub(super) async fn start(port: u16, width: u32, script: bool) -> Self {
        let (child, driver_port) = start_driver();
        let mut wanted = DesiredCapabilities::chrome();
        // The certificate of the hub is self-signed.
        wanted.accept_insecure_certs(true).unwrap();
        for argument in [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
        ] {
            wanted.add_arg(argument).unwrap();
        }
        if !script {
            let blocked = json!({"profile.managed_default_content_settings.javascript": 2});
            wanted.add_experimental_option("prefs", blocked).unwrap();
        }
        let address = format!("http://127.0.0.1:{driver_port}");
        let driver = WebDriver::new(address, wanted).await.unwrap_or_else(|error| {
            panic!("Chromium: {error}; run: apt-get install chromium chromium-driver")
        });
        driver.set_page_load_timeout(LIMIT).await.unwrap();
        driver.set_script_timeout(LIMIT).await.unwrap();
        let browser = Browser { driver, base: format!("https://127.0.0.1:{port}"), child };
        browser.resize(width).await;
        browser
    }

    /// Sets the width of the page in CSS pixels.
    pub(super) async fn resize(&self, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.chrome("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the time zone of the browser.
    pub(super) async fn zone(&self, name: &str) {
        self.chrome("Emulation.setTimezoneOverride", json!({"timezoneId": name})).await;
    }

    /// Types texts; a tab and a line feed are keys.
    pub(super) async fn types(&self, texts: &[&str]) {
        for text in texts {
            let keys = text.replace('\t', &char::from(Key::Tab).to_string());
            let keys = keys.replace('\n', &char::from(Key::Enter).to_string());
            self.driver.action_chain().send_keys(keys.as_str()).perform().await.unwrap();
        }
    }

    /// Presses the tab key until an element has the focus, as the ring around it shows.
    pub(super) async fn tabs_to(&self, selector: &str) {
        self.find(By::Css(selector)).await;
        let focus = format!(
            "const one = document.activeElement;
            return [one.matches({}) && getComputedStyle(one).outlineStyle !== 'none'].map(String);",
            serde_json::to_string(selector).unwrap()
        );
        let deadline = Instant::now() + LIMIT;
        while self.texts(&focus).await != ["true"] {
            assert!(Instant::now() < deadline, "the tab key misses {selector}");
            self.types(&["\t"]).await;
        }
    }

    /// Ends the live updates of the page, which replace its content.
    pub(super) async fn still(&self) {
        self.texts("Object.defineProperty(document, 'hidden', { get: () => true }); return [];")
            .await;
    }

    /// Selects the light or the dark style.
    pub(super) async fn style(&self, name: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": name}]});
        self.chrome("Emulation.setEmulatedMedia", features).await;
    }

    async fn chrome(&self, command: &str, parameters: Json) {
        self.driver.cdp().send_raw(command, parameters).await.unwrap();
    }

    /// Opens a page of the hub.
    pub(super) async fn open(&self, path: &str) {
        self.driver.goto(format!("{}{path}", self.base)).await.unwrap();
    }

    /// Returns the path and query of the page.
    pub(super) async fn path(&self) -> String {
        let url = self.driver.current_url().await.unwrap().to_string();
        url.strip_prefix(&self.base).unwrap_or(&url).to_owned()
    }

    /// Waits for an element. A live page can replace it before its use, see [`Browser::click`].
    pub(super) async fn find(&self, by: By) -> WebElement {
        let wanted = format!("{by:?}");
        let found = self.driver.query(by).wait(LIMIT, STEP).first().await;
        match found {
            Ok(found) => found,
            Err(error) => {
                let source = self.driver.source().await.unwrap_or_default();
                panic!("{wanted} at {}: {error}\n{source}", self.path().await)
            }
        }
    }

    /// Clicks an element, again if the page was replaced meanwhile.
    pub(super) async fn click(&self, selector: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.find(By::Css(selector)).await.click().await {
                Ok(()) => return,
                Err(error) => assert!(Instant::now() < deadline, "{selector}: {error}"),
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// Waits until the text of the page contains `text`.
    pub(super) async fn sees(&self, text: &str) {
        self.wait(&format!("'{text}' in the page"), async || {
            let body = self.driver.find(By::Tag("body")).await?;
            Ok(body.text().await?.contains(text))
        })
        .await;
    }

    /// Waits until the path and query of the page contain `text`.
    pub(super) async fn goes(&self, text: &str) {
        self.wait(&format!("'{text}' in the address"), async || {
            Ok(self.path().await.contains(text))
        })
        .await;
    }

    /// Waits until a complete page is without an element.
    pub(super) async fn lacks(&self, selector: &str) {
        self.wait(&format!("page without {selector}"), async || {
            self.driver.find(By::Css("footer p")).await?;
            Ok(self.driver.find_all(By::Css(selector)).await?.is_empty())
        })
        .await;
    }

    async fn wait(&self, what: &str, holds: impl AsyncFn() -> WebDriverResult<bool>) {
        let deadline = Instant::now() + LIMIT;
        // An error means that the page was replaced meanwhile.
        while !holds().await.unwrap_or(false) {
            if Instant::now() >= deadline {
                let source = self.driver.source().await.unwrap_or_default();
                panic!("no {what} at {}:\n{source}", self.path().await);
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// Runs a script in the page, and returns its texts.
    pub(super) async fn texts(&self, script: &str) -> Vec<String> {
        let answer = self.driver.execute(script, vec![]).await.unwrap();
        answer.convert().unwrap()
    }

    /// Stores a picture of the page in the directory of the variable `LONGHAUL_PICTURES`, if it is set.
    pub(super) async fn picture(&self, name: &str) {
        let Some(dir) = std::env::var_os("LONGHAUL_PICTURES") else { return };
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let path = std::path::Path::new(&dir).join(format!("{name}.png"));
        self.driver.screenshot(&path).await.unwrap();
    }

    /// Logs in as `admin`.
    pub(super) async fn log_in(&self, password: &str) {
        self.open("/login").await;
        self.find(By::Css("input[name=user]")).await.send_keys("admin").await.unwrap();
        self.find(By::Css("input[name=password]")).await.send_keys(password).await.unwrap();
        self.click("form.login button").await;
        self.find(By::Css("form.session button")).await;
    }

    /// Ends the browser.
    pub(super) async fn quit(self) {
        let _ = self.driver.clone().quit().await;
    }
}
