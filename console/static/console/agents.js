// The page of a thread works without this. With it, the page follows a run until it ends.
"use strict";

(() => {
  const root = document.querySelector(".pk-thread");
  if (!root) {
    return;
  }
  const REGIONS = ["pk-thread-head", "pk-pending", "pk-conversation", "pk-thread-aside"];
  const FASTEST = 1500;
  const SLOWEST = 8000;
  let delay = FASTEST;
  let failures = 0;
  let timer = null;
  const byId = (id) => document.getElementById(id);

  // What somebody has opened stays open, and what they are typing stays typed.
  function replaceRegion(fresh) {
    const old = fresh && byId(fresh.id);
    if (!old || old.contains(document.activeElement) || [...old.querySelectorAll("input[name=reason]")].some((input) => input.value)) {
      return Boolean(old) && old.outerHTML === fresh.outerHTML;
    }
    const open = new Map([...old.querySelectorAll("details[data-keep]")].map((fold) => [fold.dataset.keep, fold.open]));
    old.replaceWith(document.adoptNode(fresh));
    for (const fold of fresh.querySelectorAll("details[data-keep]")) {
      fold.open = open.get(fold.dataset.keep) ?? fold.open;
    }
    return true;
  }

  async function refresh() {
    const url = new URL(root.dataset.liveUrl, window.location.href);
    for (const [name, value] of new URL(window.location.href).searchParams) {
      url.searchParams.set(name, value);
    }
    url.searchParams.set("seen", byId("pk-thread-head").dataset.fingerprint);
    const response = await fetch(url, { credentials: "same-origin", headers: { "X-Requested-With": "fetch" } });
    // A redirect is the login page: the session is over.
    if (!response.ok || response.redirected) {
      throw new Error(`${response.status} ${url}`);
    }
    if (response.status === 204) {
      return false;
    }
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    const before = byId("pk-thread-head").dataset.fingerprint;
    const [head, ...others] = REGIONS.map((id) => fresh.getElementById(id));
    // The head holds the fingerprint: while something else could not be replaced, the next look shall try again.
    const isAll = others.map(replaceRegion).every(Boolean);
    const next = head.dataset.fingerprint;
    head.dataset.fingerprint = isAll ? next : before;
    replaceRegion(head);
    return true;
  }

  async function poll() {
    timer = null;
    if (document.hidden) {
      return;
    }
    try {
      delay = (await refresh()) ? FASTEST : Math.min(delay * 1.3, SLOWEST);
      failures = 0;
    } catch {
      failures += 1;
      delay = Math.min(delay * 2, 30_000);
    }
    follow();
  }

  function follow() {
    const isActive = byId("pk-thread-head")?.dataset.active === "yes";
    root.dataset.following = isActive && failures < 8 ? "yes" : "no";
    if (timer === null && root.dataset.following === "yes") {
      timer = window.setTimeout(poll, delay);
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && timer === null) {
      delay = FASTEST;
      follow();
    }
  });
  follow();
})();
