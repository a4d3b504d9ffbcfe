// Live updates, local times and zoom. Pages work without this script.
"use strict";
(() => {
  const announce = (text) => {
    const place = document.getElementById("announce");
    if (place) place.textContent = text;
  };

  // Times are in UTC or in the time zone of the reader; the title of a time has the other one.
  let local = false;
  try { local = localStorage.getItem("times") === "local"; } catch { /* The browser keeps no data. */ }
  const showTimes = () => {
    for (const time of document.querySelectorAll("time")) {
      time.dataset.utc ??= time.textContent;
      const here = new Date(time.dateTime).toLocaleString([], { dateStyle: "medium", timeStyle: "long" });
      time.textContent = local ? here : time.dataset.utc;
      time.title = local ? time.dataset.utc : "local: " + here;
    }
    const place = document.querySelector("footer p");
    const button = place.querySelector("button") ?? place.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = local ? "Show times in UTC" : "Show local times";
    button.onclick = () => {
      local = !local;
      try { localStorage.setItem("times", local ? "local" : "UTC"); } catch { /* As above. */ }
      showTimes();
    };
  };

  // Returns what finds the element with the focus in the next content, if it is in the content.
  const focused = () => {
    const element = document.activeElement?.closest("main") ? document.activeElement : null;
    const name = ["href", "aria-label"].find((name) => element?.hasAttribute(name));
    if (!name) return null;
    const same = `main [${name}="${CSS.escape(element.getAttribute(name))}"]`;
    return { same, at: [...document.querySelectorAll(same)].indexOf(element) };
  };

  // Reads the page again and replaces its content, unless the reader uses a form or reads details.
  let waiting = null;
  const reload = async () => {
    waiting = null;
    if (document.hidden || document.querySelector("main form:focus-within, main summary:focus, main details[open]")) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
    if (!answer || !answer.ok || answer.redirected) return;
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const focus = focused();
    const scrolled = [...document.querySelectorAll("main .scroll")].map((part) => part.scrollLeft);
    document.querySelector("main").replaceWith(next.querySelector("main"));
    document.querySelector("footer p").replaceWith(next.querySelector("footer p"));
    document.querySelectorAll("main .scroll").forEach((part, at) => { part.scrollLeft = scrolled[at] || 0; });
    if (focus) document.querySelectorAll(focus.same)[focus.at]?.focus({ preventScroll: true });
    start();
  };
  const soon = () => { waiting ??= setTimeout(reload, 1500); };

  // A browser has six connections to a hub. So a page holds one only while it is seen: not in the
  // background, and not while the browser keeps it for its button "back".
  let stream = null;
  const listen = () => {
    if (stream || document.hidden || !document.body.hasAttribute("data-live") || !window.EventSource) return;
    stream = new EventSource("/api/v1/events/stream");
    stream.addEventListener("changed", soon);
    stream.addEventListener("event", (message) => {
      const event = JSON.parse(message.data);
      if (event.severity !== "info") announce(`${event.subject}: ${event.message}`);
      soon();
    });
  };
  const rest = () => {
    stream?.close();
    stream = null;
  };
  const resume = () => {
    if (stream || document.hidden) return;
    listen();
    if (stream) soon();
  };

  // A range that is dragged over a graph becomes the range of the page.
  const zoom = (figure) => {
    const svg = figure.querySelector("svg.area");
    const data = figure.dataset;
    const timeAt = (x) => {
      const box = svg.getBoundingClientRect();
      const bounded = Math.min(1, Math.max(0, (x - box.left) / box.width));
      return Math.round(Number(data.from) + bounded * (Number(data.to) - Number(data.from)));
    };
    let from = null, band = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      from = event.clientX;
      svg.setPointerCapture(event.pointerId);
      band = document.body.appendChild(document.createElement("div"));
      band.className = "select";
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const box = svg.getBoundingClientRect();
      band.style.left = Math.min(from, event.clientX) + scrollX + "px";
      band.style.width = Math.abs(event.clientX - from) + "px";
      band.style.top = box.top + scrollY + "px";
      band.style.height = box.height + "px";
    });
    const end = (event) => {
      if (from === null) return;
      const [a, b] = [timeAt(from), timeAt(event.clientX)].sort((one, two) => one - two);
      from = null;
      band.remove();
      if (event.type === "pointerup" && b - a > 1000) {
        const url = new URL(location.href);
        url.searchParams.set("from", a);
        url.searchParams.set("to", b);
        location.href = url.href;
      }
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
  };

  const start = () => {
    showTimes();
    document.querySelectorAll("figure.plot[data-from]").forEach(zoom);
  };
  start();
  listen();
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => { if (event.persisted) resume(); });
  document.addEventListener("visibilitychange", () => { if (document.hidden) rest(); else resume(); });
})();
