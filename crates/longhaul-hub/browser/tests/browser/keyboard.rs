//! Visits with the keyboard only, and the times of the reader's zone.

use thirtyfour::prelude::*;

use super::driver::Browser;
use super::hub::filled;
use super::pages::PAGES;

#[tokio::test(flavor = "multi_thread")]
async fn the_tab_key_reaches_everything_in_order() {
    let (hub, run) = filled().await;
    let browser = Browser::start(hub.client.address.port(), 1400, true).await;
    browser.log_in(&hub.password).await;
    let run = format!("/runs/{run}");
    for path in PAGES.into_iter().chain([run.as_str()]) {
        browser.open(path).await;
        browser.still().await;
        // A number marks each control.
        let controls = "const kinds = 'a[href], button, summary, select, input:not([type=hidden])';
            const all = [...document.querySelectorAll(kinds)].filter((one) => one.checkVisibility());
            all.forEach((one, at) => { one.dataset.at = at; });
            return all.map((_, at) => String(at));";
        let wanted = browser.texts(controls).await;
        assert!(wanted.len() > 8, "{path}: {wanted:?}");
        let mut reached = Vec::new();
        // Parts that scroll are stops, too.
        for _ in 0..wanted.len() + 20 {
            browser.types(&["\t"]).await;
            let focus = "const one = document.activeElement;
                const ring = one === document.body || getComputedStyle(one).outlineStyle !== 'none';
                return [one.dataset.at ?? '', ring ? '' : one.outerHTML.slice(0, 200)];";
            let focus = browser.texts(focus).await;
            assert_eq!(focus[1], "", "{path}: the focus is visible");
            if !focus[0].is_empty() && !reached.contains(&focus[0]) {
                reached.push(focus[0].clone());
            }
        }
        assert_eq!(reached, wanted, "{path}: the tab key follows the order of the page");
    }
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_works_with_the_keyboard_only() {
    let (hub, run) = filled().await;
    let browser = Browser::start(hub.client.address.port(), 1400, true).await;
    browser.open("/login").await;
    // The field of the user has the focus.
    browser.types(&["admin", "\t", &hub.password, "\n"]).await;
    browser.find(By::Css("form.session button")).await;
    browser.still().await;
    // The first stop of the tab key skips the navigation.
    browser.types(&["\t", "\n", "\t"]).await;
    let inside = "return [String(document.activeElement.closest('main') !== null)];";
    assert_eq!(browser.texts(inside).await, ["true"], "the skip link leads to the content");
    browser.tabs_to("a[href='/pairs/a/b']").await;
    browser.types(&["\n"]).await;
    browser.goes("/pairs/a/b").await;
    zoom(&browser).await;
    browser.tabs_to("input[name=from]").await;
    // The tab key selects the text of a field.
    browser.types(&["now-2h", "\t", "now", "\n"]).await;
    browser.goes("from=now-2h&to=now").await;
    browser.tabs_to(&format!("a[href='/runs/{run}']")).await;
    browser.types(&["\n"]).await;
    browser.sees("Fencing number").await;
    browser.tabs_to("details.more summary").await;
    browser.types(&[" "]).await;
    browser.sees("longhaul.test/1").await;
    browser.open("/events").await;
    let button = "button[aria-label^='Acknowledge: <script>']";
    browser.tabs_to(button).await;
    browser.types(&["\n"]).await;
    browser.lacks(button).await;
    browser.tabs_to("form.session button").await;
    browser.types(&["\n"]).await;
    browser.goes("/login").await;
    browser.quit().await;
}

/// Zooms and moves the graphs of a pair by the links of the range.
async fn zoom(browser: &Browser) {
    for (selector, address) in [
        (".range a[href$='from=now-12h&to=now']", "from=now-12h&to=now"),
        (".range a[href$='from=now-6h&to=now']", "from=now-6h&to=now"),
        (".range a[href$='from=now-12h&to=now']", "from=now-12h&to=now"),
        (".range a[href$='from=now-7d&to=now']", "from=now-7d&to=now"),
    ] {
        browser.tabs_to(selector).await;
        browser.types(&["\n"]).await;
        browser.goes(address).await;
        browser.find(By::Css("figure.plot svg")).await;
    }
    let earlier = "return [...document.querySelectorAll('.range a')]
        .filter((one) => one.textContent === 'Earlier').map((one) => one.getAttribute('href'));";
    let earlier = browser.texts(earlier).await;
    browser.tabs_to(&format!(".range a[href='{}']", earlier[0])).await;
    browser.types(&["\n"]).await;
    browser.goes(&earlier[0]).await;
}

/// The texts of the times of a page, and the text of the button for them.
const TIMES: &str = "const times = [...document.querySelectorAll('main time')];
    return [times.length > 0, times.every((time) => time.textContent.endsWith(' UTC')),
        times.every((time) => time.title.startsWith('local: ')),
        times.every((time) => time.title.endsWith(' UTC')),
        document.querySelector('footer button').textContent].map(String);";

#[tokio::test(flavor = "multi_thread")]
async fn a_button_shows_local_times_until_it_is_pressed_again() {
    let (hub, _) = filled().await;
    let browser = Browser::start(hub.client.address.port(), 1400, true).await;
    // India is half an hour from whole hours, and has no daylight saving time.
    browser.zone("Asia/Kolkata").await;
    browser.log_in(&hub.password).await;
    browser.open("/runs").await;
    browser.find(By::Css("main time[title^='local:']")).await;
    assert_eq!(browser.texts(TIMES).await, ["true", "true", "true", "false", "Show local times"]);
    browser.click("footer button").await;
    let local = ["true", "false", "false", "true", "Show times in UTC"];
    assert_eq!(browser.texts(TIMES).await, local);
    let differences = "return [...document.querySelectorAll('main time')].map((time) => {
        const [day, clock] = time.title.split(' ');
        const shown = /(\\d+):(\\d+):(\\d+)\\s?(AM|PM)?/.exec(time.textContent);
        const hours = Number(shown[1]) % (shown[4] ? 12 : 24) + (shown[4] === 'PM' ? 12 : 0);
        const [hour, minute] = clock.split(':').map(Number);
        return String((hours * 60 + Number(shown[2]) - hour * 60 - minute + 1440) % 1440);
    });";
    let differences = browser.texts(differences).await;
    assert!(
        !differences.is_empty() && differences.iter().all(|one| one == "330"),
        "{differences:?}"
    );
    // The choice is that of the reader, on every page, and by keyboard, too.
    browser.open("/schedule").await;
    browser.find(By::Css("main time[title$=' UTC']")).await;
    assert_eq!(browser.texts(TIMES).await, local);
    browser.tabs_to("footer button").await;
    browser.types(&[" "]).await;
    assert_eq!(browser.texts(TIMES).await[4], "Show local times");
    browser.open("/runs").await;
    browser.find(By::Css("main time[title^='local:']")).await;
    browser.quit().await;
}

/// Gives the focus to the last link whose target another link has, too, and marks the content.
const FOCUS: &str =
    "const all = [...document.querySelectorAll('main a')].map((one) => one.getAttribute('href'));
    const at = all.findLastIndex((one, at) => all.indexOf(one) < at);
    document.querySelectorAll('main a')[at]?.focus();
    document.querySelector('main').dataset.old = 'old';
    return [String(at)];";

/// The place of the link with the focus, and the mark of the content.
const FOCUSED: &str = "const all = [...document.querySelectorAll('main a')];
    return [String(all.indexOf(document.activeElement)), document.querySelector('main').dataset.old ?? ''];";

#[tokio::test(flavor = "multi_thread")]
async fn a_live_update_keeps_the_focus() {
    let (hub, _) = filled().await;
    let browser = Browser::start(hub.client.address.port(), 1400, true).await;
    browser.log_in(&hub.password).await;
    browser.open("/").await;
    browser.sees("9.40 Gb/s").await;
    let at = browser.texts(FOCUS).await;
    assert_ne!(at, ["-1"], "two links with the same target");
    // The event of a refused log in updates the page.
    let refused = hub.client.form("/login", "", "user=nobody&password=x").await;
    assert_ne!(refused.status, 303, "{refused:?}");
    browser.find(By::Css("main:not([data-old])")).await;
    assert_eq!(browser.texts(FOCUSED).await, [at[0].as_str(), ""]);
    browser.quit().await;
}
