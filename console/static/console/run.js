// The page of a run works without this. With it, steps open in place, the slider travels in time, and a live run is followed.
"use strict";

(() => {
  const root = document.querySelector(".pk-run");
  if (!root) {
    return;
  }
  document.documentElement.classList.add("pk-scripted");
  const text = (name) => root.dataset[`text${name[0].toUpperCase()}${name.slice(1)}`] || "";
  const byId = (id) => document.getElementById(id);

  // -- copying ------------------------------------------------------------------------------------------------------

  async function toClipboard(value) {
    if (navigator.clipboard && window.isSecureContext) {
      await navigator.clipboard.writeText(value);
      return;
    }
    // Plain http offers no clipboard.
    const area = document.createElement("textarea");
    area.value = value;
    area.className = "pk-hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) {
      throw new Error("not copied");
    }
  }

  async function copy(button, read) {
    const before = button.textContent;
    try {
      await toClipboard(await read());
      button.textContent = text("copied");
    } catch {
      button.textContent = text("copyFailed");
    }
    window.setTimeout(() => {
      button.textContent = before;
    }, 1500);
  }

  async function load(url) {
    const response = await fetch(url, { credentials: "same-origin", headers: { "X-Requested-With": "fetch" } });
    // A redirect is the login page: the session is over.
    if (!response.ok || response.redirected) {
      throw new Error(`${response.status} ${url}`);
    }
    return response;
  }

  const parse = (html) => new DOMParser().parseFromString(html, "text/html");

  // -- opening a step -------------------------------------------------------------------------------------------------

  const panel = byId("pk-panel");

  function setParams(changes) {
    const url = new URL(window.location.href);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") {
        url.searchParams.delete(name);
      } else {
        url.searchParams.set(name, value);
      }
    }
    url.hash = "";
    window.history.replaceState(null, "", url);
  }

  function markSelected(stepId) {
    for (const lane of root.querySelectorAll(".pk-lane[data-step]")) {
      const chosen = lane.dataset.step === stepId;
      lane.classList.toggle("pk-selected", chosen);
      const label = lane.querySelector("a.pk-label");
      if (chosen) {
        label.setAttribute("aria-current", "true");
      } else {
        label.removeAttribute("aria-current");
      }
    }
  }

  async function showPanel(url) {
    const html = await (await load(url)).text();
    const open = openDetails(panel);
    panel.replaceChildren(...parse(html).body.childNodes);
    restoreDetails(panel, open);
  }

  async function openStep(link) {
    const lane = link.closest(".pk-lane");
    markSelected(lane.dataset.step);
    setParams({ step: lane.dataset.step });
    try {
      await showPanel(link.dataset.stepUrl);
    } catch {
      const note = document.createElement("p");
      note.className = "pk-nothing pk-error";
      note.textContent = text("error");
      panel.replaceChildren(note);
    }
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  }

  // -- time travel ------------------------------------------------------------------------------------------------------

  const LETTERS = { p: "queued", q: "queued", r: "running", s: "succeeded", f: "failed" };
  let cursor = null;
  let cameFromPast = false;
  let events = null;

  async function eventData() {
    if (!events) {
      const embedded = byId("pk-events-data");
      const url = new URL(root.dataset.eventsUrl, window.location.href);
      const idle = new URL(window.location.href).searchParams.get("idle");
      if (idle) {
        url.searchParams.set("idle", idle);
      }
      events = embedded ? JSON.parse(embedded.textContent) : await (await load(url)).json();
    }
    return events;
  }

  function stateOfGroup(states) {
    for (const state of ["running", "waiting", "queued", "failed"]) {
      if (states.includes(state)) {
        return state;
      }
    }
    if (states.includes("unreached")) {
      return states.includes("succeeded") ? "running" : "unreached";
    }
    return "succeeded";
  }

  // The fold of the run's events up to the cursor: the last one of each step says what it was doing.
  function statesAt(data, at) {
    const states = new Array(data.ids.length).fill("unreached");
    const sleeps = new Set(data.sleeps);
    for (let seq = 0; seq <= at && seq < data.type.length; seq += 1) {
      const step = data.step[seq];
      const state = LETTERS[data.type[seq]];
      states[step] = (state === "queued" || state === "running") && sleeps.has(step) ? "waiting" : state;
    }
    return states;
  }

  function setState(lane, state) {
    lane.dataset.present ??= lane.dataset.state;
    lane.dataset.state = state;
    lane.querySelector(".pk-state").textContent = text(state) || text(state[0]);
  }

  function paint(data) {
    const travelling = cursor !== null;
    const lanes = byId("pk-lanes");
    lanes.classList.toggle("pk-travelling", travelling);
    root.classList.toggle("pk-in-past", travelling);
    const states = statesAt(data, travelling ? cursor : data.type.length);
    const indexOf = new Map(data.ids.map((id, index) => [id, index]));
    for (const lane of lanes.querySelectorAll(".pk-lane[data-state]")) {
      if (!travelling) {
        setState(lane, lane.dataset.present ?? lane.dataset.state);
      } else if (lane.dataset.step !== undefined) {
        setState(lane, states[indexOf.get(lane.dataset.step)] ?? "unreached");
      } else {
        setState(lane, stateOfGroup((data.groups[lane.dataset.group] || []).map((index) => states[index])));
      }
      for (const bar of lane.querySelectorAll(".pk-bar")) {
        const isFuture = travelling && "first" in bar.dataset && Number(bar.dataset.first) > cursor;
        const isOpen = travelling && !isFuture && "last" in bar.dataset && Number(bar.dataset.last) > cursor;
        bar.classList.toggle("pk-future", isFuture);
        bar.classList.toggle("pk-open", isOpen);
      }
    }
    paintSlider(data);
  }

  function paintSlider(data) {
    const count = data.type.length;
    const at = cursor === null ? count - 1 : cursor;
    const place = cursor === null ? 100 : cursor < 0 ? 0 : data.x[cursor];
    const [veil, line] = byId("pk-veil") ? byId("pk-veil").children : [];
    if (veil) {
      veil.setAttribute("x", `${place}%`);
      veil.setAttribute("width", `${100 - place}%`);
      line.setAttribute("x1", `${place}%`);
      line.setAttribute("x2", `${place}%`);
    }
    byId("pk-rail").setAttribute("width", `${place}%`);
    byId("pk-knob").setAttribute("cx", `${place}%`);
    byId("pk-position").textContent = String(at + 1);
    const now = byId("pk-now");
    now.textContent = cursor === null ? now.dataset.present : text("past");
    now.classList.toggle("pk-is-past", cursor !== null);
    const range = byId("pk-range");
    range.value = String(at);
    range.setAttribute("aria-valuetext", cursor === null ? now.dataset.present : `${at + 1} ${text("of")} ${count}`);
    describe(data);
  }

  function describe(data) {
    const line = byId("pk-event");
    if (cursor === null) {
      line.replaceChildren();
      return;
    }
    if (cursor < 0) {
      line.textContent = text("before");
      return;
    }
    const step = data.step[cursor];
    const type = data.type[cursor];
    const name = document.createElement("b");
    name.textContent = data.names[step];
    const origin = type === "p" && data.from[step] ? ` · ${text("from")} ${data.from[step]}` : "";
    line.replaceChildren(
      `+${(data.ms[cursor] / 1000).toFixed(3)} s · `,
      name,
      ` ${text(type)} · ${text("attempt")} ${data.attempt[cursor]}${origin}`,
    );
  }

  async function travelTo(at) {
    let data;
    try {
      data = await eventData();
    } catch {
      byId("pk-event").textContent = text("error");
      return;
    }
    const last = data.type.length - 1;
    cursor = at === null || at >= last ? null : Math.max(-1, at);
    // The address counts events from 1, as the page does.
    setParams({ at: cursor === null ? null : cursor + 1 });
    paint(data);
    if (cursor === null && cameFromPast) {
      // The page was made for a moment in the past, so it does not know the present.
      cameFromPast = false;
      await refresh({ grow: true });
    }
  }

  function nearestEvent(data, place) {
    let best = -1;
    let distance = Math.abs(place);
    data.x.forEach((x, seq) => {
      if (Math.abs(x - place) <= distance) {
        best = seq;
        distance = Math.abs(x - place);
      }
    });
    return best;
  }

  async function travelToPointer(event) {
    const track = byId("pk-slider").querySelector("svg").getBoundingClientRect();
    const place = ((event.clientX - track.left) / track.width) * 100;
    await travelTo(place >= 99.6 ? null : nearestEvent(await eventData(), place));
  }

  // -- following a live run ----------------------------------------------------------------------------------------------

  const REGIONS = ["pk-head", "pk-lanes", "pk-events", "pk-aside"];
  const FASTEST = 1000;
  const SLOWEST = 5000;
  const GROW_EVERY = 3000;
  const shown = new Map(REGIONS.map((id) => [id, byId(id)?.outerHTML]));
  let delay = FASTEST;
  let grown = Date.now();
  let failures = 0;
  let timer = null;

  function openDetails(container) {
    const found = [...container.querySelectorAll("details[data-keep]")];
    return new Map(found.map((details) => [details.dataset.keep, details.open]));
  }

  function restoreDetails(container, open) {
    for (const details of container.querySelectorAll("details[data-keep]")) {
      if (open.has(details.dataset.keep)) {
        details.open = open.get(details.dataset.keep);
      }
    }
  }

  function focusKey(element) {
    const lane = element.closest?.(".pk-lane[data-step]");
    if (lane) {
      return `.pk-lane[data-step="${CSS.escape(lane.dataset.step)}"] a.pk-label`;
    }
    const group = element.closest?.("details[data-keep]");
    if (group && element.matches("summary")) {
      return `details[data-keep="${CSS.escape(group.dataset.keep)}"] > summary`;
    }
    return element.id ? `#${CSS.escape(element.id)}` : null;
  }

  function replaceRegion(id, fresh) {
    const old = byId(id);
    if (!old || !fresh || shown.get(id) === fresh.outerHTML) {
      return;
    }
    shown.set(id, fresh.outerHTML);
    const open = openDetails(old);
    const focused = old.contains(document.activeElement) ? focusKey(document.activeElement) : null;
    old.replaceWith(document.adoptNode(fresh));
    restoreDetails(fresh, open);
    if (focused) {
      fresh.querySelector(focused)?.focus({ preventScroll: true });
    }
  }

  function liveUrl(extra) {
    const url = new URL(root.dataset.liveUrl, window.location.href);
    for (const [name, value] of new URL(window.location.href).searchParams) {
      if (name !== "at") {
        url.searchParams.set(name, value);
      }
    }
    for (const [name, value] of Object.entries(extra)) {
      url.searchParams.set(name, value);
    }
    return url;
  }

  async function refresh({ grow = false } = {}) {
    const head = byId("pk-head");
    const before = head.dataset.fingerprint;
    const response = await load(liveUrl({ seen: before, ...(grow ? { grow: 1 } : {}) }));
    if (response.status === 204) {
      return false;
    }
    const fresh = parse(await response.text());
    const selected = root.querySelector(".pk-lane.pk-selected")?.dataset.step ?? panel.querySelector("[data-step]")?.dataset.step;
    for (const id of REGIONS) {
      replaceRegion(id, fresh.getElementById(id));
    }
    grown = Date.now();
    events = null;
    if (selected !== undefined) {
      markSelected(selected);
    }
    if (cursor !== null) {
      paint(await eventData());
    }
    const changed = byId("pk-head").dataset.fingerprint !== before;
    if (changed) {
      await refreshPanel();
    }
    return changed;
  }

  async function refreshPanel() {
    const card = panel.querySelector(".pk-panel[data-step]");
    if (!card) {
      root.querySelector(".pk-lane a.pk-label[aria-current]")?.dataset.stepUrl &&
        (await showPanel(root.querySelector(".pk-lane a.pk-label[aria-current]").dataset.stepUrl));
      return;
    }
    const label = root.querySelector(`.pk-lane[data-step="${CSS.escape(card.dataset.step)}"] a.pk-label`);
    const isSettled = ["succeeded", "failed"].includes(card.dataset.state);
    if (label && !isSettled) {
      await showPanel(label.dataset.stepUrl);
    }
  }

  async function poll() {
    timer = null;
    if (document.hidden) {
      return;
    }
    try {
      const changed = await refresh({ grow: Date.now() - grown >= GROW_EVERY });
      delay = changed ? FASTEST : Math.min(delay * 1.3, SLOWEST);
      failures = 0;
    } catch {
      failures += 1;
      delay = Math.min(delay * 2, 30_000);
    }
    follow();
  }

  function follow() {
    const isActive = byId("pk-head")?.dataset.active === "yes";
    root.dataset.following = isActive && failures < 8 ? "yes" : "no";
    if (timer === null && root.dataset.following === "yes") {
      timer = window.setTimeout(poll, delay);
    }
  }

  // -- wiring ---------------------------------------------------------------------------------------------------------------

  const plainClick = (event) => event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

  root.addEventListener("click", (event) => {
    if (!plainClick(event)) {
      return;
    }
    const target = event.target.closest("[data-copy], [data-copy-url], a[data-step-url], a[data-at], #pk-previous, #pk-next, #pk-now");
    if (!target) {
      return;
    }
    if (target.matches("[data-copy]")) {
      copy(target, async () => target.dataset.copy);
      return;
    }
    event.preventDefault();
    if (target.matches("[data-copy-url]")) {
      copy(target, async () => (await load(target.dataset.copyUrl)).text());
    } else if (target.matches("[data-step-url]")) {
      openStep(target);
    } else if (target.matches("[data-at]")) {
      travelTo(Number(target.dataset.at));
    } else if (target.id === "pk-now") {
      travelTo(null);
    } else {
      const position = Number(byId("pk-position").textContent) - 1;
      travelTo(target.id === "pk-previous" ? position - 1 : position + 1);
    }
  });

  root.addEventListener("input", (event) => {
    if (event.target.id === "pk-range") {
      travelTo(Number(event.target.value));
    }
  });

  root.addEventListener("pointerdown", (event) => {
    const slider = event.target.closest("#pk-slider");
    if (!slider || event.button !== 0) {
      return;
    }
    event.preventDefault();
    byId("pk-range").focus({ preventScroll: true });
    slider.setPointerCapture(event.pointerId);
    travelToPointer(event);
  });

  root.addEventListener("pointermove", (event) => {
    const slider = event.target.closest("#pk-slider");
    if (slider?.hasPointerCapture(event.pointerId)) {
      travelToPointer(event);
    }
  });

  const tools = byId("pk-tools");
  if (tools) {
    let waiting = null;
    const apply = async () => {
      const chosen = new FormData(tools);
      setParams({ state: chosen.get("state"), name: chosen.get("name").trim(), idle: chosen.get("idle"), page: null });
      try {
        await refresh({ grow: true });
      } catch {
        tools.submit();
      }
    };
    tools.addEventListener("submit", (event) => {
      event.preventDefault();
      apply();
    });
    tools.addEventListener("input", (event) => {
      window.clearTimeout(waiting);
      waiting = window.setTimeout(apply, event.target.name === "name" ? 250 : 0);
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && timer === null && byId("pk-head")) {
      delay = FASTEST;
      follow();
    }
  });

  const params = new URL(window.location.href).searchParams;
  if (params.has("at") && byId("pk-range")) {
    const at = Number(byId("pk-range").value);
    cursor = at < Number(byId("pk-range").max) ? at : null;
    cameFromPast = true;
  }
  if (byId("pk-head")) {
    follow();
  }
})();
