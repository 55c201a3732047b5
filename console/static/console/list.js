// The lists work without this. It closes menus, and renews a list while something on its page goes on.
"use strict";

(() => {
  const EVERY = 5000;
  const SLOWEST = 60_000;
  const REGIONS = [".pk-tabs", ".results", ".pk-empty", ".pk-pages", ".pk-list-note"];
  let delay = EVERY;
  let timer = null;

  // Nobody's choice of rows or selected text is taken away.
  const isInUse = () =>
    document.querySelector("input.action-select:checked") !== null || !window.getSelection().isCollapsed;

  function replace(fresh) {
    for (const region of REGIONS) {
      const [old, other] = [document.querySelector(region), fresh.querySelector(region)];
      if (old && other && old.outerHTML !== other.outerHTML) {
        const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        old.replaceWith(document.adoptNode(other));
        if (focused) {
          other.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
        }
      }
    }
    const boxes = document.querySelectorAll("tr input.action-select");
    if (boxes.length > 0 && window.Actions) {
      // The admin's own script knows the rows of before only.
      window.Actions(boxes);
    }
    document.body.classList.toggle("pk-is-active-list", fresh.body.classList.contains("pk-is-active-list"));
  }

  async function renew() {
    timer = null;
    if (document.hidden || isInUse()) {
      follow();
      return;
    }
    try {
      const response = await fetch(window.location.href, { credentials: "same-origin" });
      if (!response.ok || response.redirected) {
        throw new Error(String(response.status));
      }
      const before = document.querySelector(".results")?.textContent;
      replace(new DOMParser().parseFromString(await response.text(), "text/html"));
      delay = before === document.querySelector(".results")?.textContent ? Math.min(delay * 1.5, SLOWEST) : EVERY;
    } catch {
      delay = Math.min(delay * 2, SLOWEST);
    }
    follow();
  }

  function follow() {
    const isActive = document.body.classList.contains("pk-is-active-list");
    document.body.dataset.following = isActive ? "yes" : "no";
    if (timer === null && isActive && !document.hidden) {
      timer = window.setTimeout(renew, delay);
    }
  }

  document.addEventListener("visibilitychange", () => {
    delay = EVERY;
    follow();
  });

  // A menu closes by Escape and by a click elsewhere.
  const closeMenus = (except) => {
    for (const menu of document.querySelectorAll("details.pk-menu[open]")) {
      if (menu !== except) {
        menu.open = false;
      }
    }
  };
  document.addEventListener("click", (event) => closeMenus(event.target.closest("details.pk-menu")));
  document.addEventListener("keydown", (event) => {
    const menu = event.target.closest?.("details.pk-menu[open]");
    if (event.key === "Escape" && menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
  document.addEventListener("DOMContentLoaded", follow);
})();
