// Following a live run: what changed on the server replaces what is shown, until the run has ended.
"use strict";

(() => {
  const page = window.pikkuRun;
  if (!page || !page.root.dataset.liveUrl) {
    return;
  }
  const { root, byId, parse, load, openDetails, restoreDetails } = page;
  const REGIONS = ["pk-head", "pk-lanes", "pk-graph-region", "pk-events", "pk-aside"];
  const FASTEST = 1000;
  const SLOWEST = 5000;
  const GROW_EVERY = 3000;
  const WORKERS_EVERY = 15_000;
  const shown = new Map(REGIONS.map((id) => [id, byId(id)?.outerHTML]));
  let delay = FASTEST;
  let grown = Date.now();
  let failures = 0;
  let timer = null;
  let askedForWorkers = 0;
  let asked = 0;
  let applied = 0;

  function focusKey(element) {
    const lane = element.closest?.(".pk-lane[data-step]");
    if (lane) {
      const part = element.matches(".pk-toggle") ? ".pk-toggle" : "a.pk-label";
      return `.pk-lane[data-step="${CSS.escape(lane.dataset.step)}"] ${part}`;
    }
    if (element.dataset?.stepId) {
      return `[data-step-id="${CSS.escape(element.dataset.stepId)}"]`;
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

  // A form is left alone while it is the same question, since somebody may be filling it in.
  function replaceGate(fresh) {
    const old = byId("pk-gate");
    if (old && fresh && old.dataset.gate !== fresh.dataset.gate) {
      old.replaceWith(document.adoptNode(fresh));
    }
  }

  function liveUrl(extra) {
    const url = new URL(root.dataset.liveUrl, window.location.href);
    for (const [name, value] of new URL(window.location.href).searchParams) {
      if (name !== "at") {
        url.searchParams.append(name, value);
      }
    }
    for (const [name, value] of Object.entries(extra)) {
      url.searchParams.set(name, value);
    }
    return url;
  }

  async function refresh({ grow = false } = {}) {
    const before = byId("pk-head").dataset.fingerprint;
    const number = (asked += 1);
    const response = await load(liveUrl({ seen: before, ...(grow ? { grow: 1 } : {}) }));
    if (response.status === 204) {
      return false;
    }
    const fresh = parse(await response.text());
    // An answer that was overtaken is of what nobody asks for any more.
    if (number < applied) {
      return false;
    }
    applied = number;
    const selected = page.steps.selected();
    for (const id of REGIONS) {
      replaceRegion(id, fresh.getElementById(id));
    }
    replaceGate(fresh.getElementById("pk-gate"));
    grown = Date.now();
    if (selected !== undefined) {
      page.steps.mark(selected);
    }
    await page.travel.renew();
    const changed = byId("pk-head").dataset.fingerprint !== before;
    if (changed) {
      await page.steps.renew();
    }
    return changed;
  }

  async function askForWorkers() {
    const place = byId("pk-workers");
    if (byId("pk-head").dataset.waitsForWorker !== "yes") {
      place.replaceChildren();
      return;
    }
    if (Date.now() - askedForWorkers < WORKERS_EVERY) {
      return;
    }
    askedForWorkers = Date.now();
    try {
      const fresh = parse(await (await load(root.dataset.workersUrl)).text());
      if (place.textContent !== fresh.body.textContent) {
        place.replaceChildren(...fresh.body.childNodes);
      }
    } catch {
      // The sentence above says how long it waits; who listens is an extra.
      place.replaceChildren();
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
      await askForWorkers();
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

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && timer === null && byId("pk-head")) {
      delay = FASTEST;
      follow();
    }
  });

  page.refresh = refresh;
  page.travel.refreshBy(refresh);
  follow();
})();
