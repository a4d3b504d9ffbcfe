//! Visits with a pointer: a log in, the grid, a pair, a zoom, ranges, an acknowledgement; narrow windows.

use thirtyfour::prelude::*;

use super::driver::Browser;
use super::hub::filled;

const CHECKS: &str = include_str!("checks.js");
const WIDTH: &str = include_str!("width.js");
/// The pages of [`filled`] besides that of its run.
pub(super) const PAGES: [&str; 10] = [
    "/",
    "/?metric=throughput",
    "/hosts",
    "/hosts/a",
    "/pairs/a/b",
    "/runs",
    "/schedule",
    "/events?all=1",
    "/search?q=a",
    "/nothing",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_person_reads_zooms_and_acknowledges() {
    let (hub, run) = filled().await;
    let browser = Browser::start(hub.client.address.port(), 1400, true).await;
    browser.open("/").await;
    browser.goes("/login").await;
    browser.log_in(&hub.password).await;
    // The page updates itself until the value is there.
    browser.find(By::Css("table.grid")).await;
    browser.sees("9.40 Gb/s").await;
    browser.click("table.grid a[href='/pairs/a/b']").await;
    browser.goes("/pairs/a/b").await;
    browser.sees("Throughput of the runs").await;
    browser.find(By::Css("main time[title^='local:']")).await;

    zoom(&browser).await;
    browser.click(".range a[href$='from=now-7d&to=now']").await;
    browser.goes("from=now-7d").await;
    let from = browser.find(By::Css("input[name=from]")).await;
    from.clear().await.unwrap();
    from.send_keys("now-2h").await.unwrap();
    browser.click("form.range button").await;
    browser.goes("from=now-2h").await;
    browser.click(&format!("a[href='/runs/{run}']")).await;
    browser.sees("Fencing number").await;

    acknowledge(&browser).await;
    let alerts = "return [String(document.querySelectorAll('main script').length)]";
    assert_eq!(browser.texts(alerts).await, ["0"], "a stored script is text");
    browser.quit().await;
}

/// Acknowledges the event of the agent.
async fn acknowledge(browser: &Browser) {
    let button = "button[aria-label^='Acknowledge: <script>']";
    browser.open("/events").await;
    browser.click(button).await;
    // The answer leads to /events, so another page must not be opened before it.
    browser.lacks(button).await;
    browser.open("/events?all=1").await;
    browser.sees("admin, ").await;
}

/// Drags over a graph, which chooses its range.
async fn zoom(browser: &Browser) {
    let deadline = std::time::Instant::now() + super::driver::LIMIT;
    while !browser.path().await.contains("from=1") {
        assert!(std::time::Instant::now() < deadline, "the drag does not zoom");
        let graph = browser.find(By::Css("figure.plot svg.area")).await;
        let _ = graph.scroll_into_view().await;
        let drag = browser.driver.action_chain().move_to_element_with_offset(&graph, -100, 0);
        // A live page can replace the graph during the drag.
        let _ = drag.click_and_hold().move_by_offset(250, 0).release().perform().await;
        // A second drag before the new page would zoom further.
        for _ in 0..50 {
            if browser.path().await.contains("from=1") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }
    let path = browser.path().await;
    let number = |name: &str| -> i64 {
        let rest = path.split(name).nth(1).unwrap_or_else(|| panic!("{path}"));
        rest.split('&').next().unwrap().parse().unwrap_or_else(|_| panic!("{path}"))
    };
    let hours = (number("to=") - number("from=")) as f64 / 3_600_000.0;
    assert!((1.0..20.0).contains(&hours), "a part of the day: {hours} h");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_work_without_script() {
    let (hub, run) = filled().await;
    let browser = Browser::start(hub.client.address.port(), 1400, false).await;
    browser.log_in(&hub.password).await;
    browser.find(By::Css("table.grid")).await;
    browser.open("/pairs/a/b").await;
    browser.click(".range a[href$='from=now-30d&to=now']").await;
    browser.goes("from=now-30d").await;
    browser.find(By::Css("figure.plot svg.area")).await;
    let local = browser.driver.find(By::Css("time[title]")).await;
    assert!(local.is_err(), "scripts are off, so no time has a title");
    browser.open(&format!("/runs/{run}")).await;
    browser.click("details.more summary").await;
    browser.sees("longhaul.test/1").await;
    acknowledge(&browser).await;
    browser.click("form.session button").await;
    browser.goes("/login").await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_serve_narrow_windows_and_screen_readers() {
    let (hub, run) = filled().await;
    let browser = Browser::start(hub.client.address.port(), 1400, true).await;
    browser.open("/login").await;
    assert_eq!(browser.texts(CHECKS).await, [""; 0], "/login");
    browser.log_in(&hub.password).await;
    let run = format!("/runs/{run}");
    for path in PAGES.into_iter().chain([run.as_str()]) {
        browser.open(path).await;
        for (style, width) in [("light", 1400), ("light", 390), ("dark", 390), ("dark", 1400)] {
            browser.style(style).await;
            browser.resize(width).await;
            let place = format!("{path} {style} {width}");
            browser.picture(&place).await;
            assert_eq!(browser.texts(CHECKS).await, [""; 0], "{place}");
            assert_eq!(browser.texts(WIDTH).await, [""; 0], "{place}");
        }
    }
    browser.quit().await;
}
