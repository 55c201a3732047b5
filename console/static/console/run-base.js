// What the scripts of a run's page share: texts, loading, folded parts, the address, and copying.
"use strict";

window.pikkuRun = (() => {
  const root = document.querySelector(".pk-run");
  if (!root) {
    return null;
  }
  document.documentElement.classList.add("pk-scripted");
  const text = (name) => root.dataset[`text${name[0].toUpperCase()}${name.slice(1)}`] || "";
  const byId = (id) => document.getElementById(id);
  const parse = (html) => new DOMParser().parseFromString(html, "text/html");

  async function load(url) {
    const response = await fetch(url, { credentials: "same-origin", headers: { "X-Requested-With": "fetch" } });
    // A redirect is the login page: the session is over.
    if (!response.ok || response.redirected) {
      throw new Error(`${response.status} ${url}`);
    }
    return response;
  }

  // -- the address ----------------------------------------------------------------------------------------------------

  function changeAddress(change) {
    const url = new URL(window.location.href);
    change(url.searchParams);
    url.hash = "";
    window.history.replaceState(null, "", url);
  }

  function setParams(changes) {
    changeAddress((params) => {
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === "") {
          params.delete(name);
        } else {
          params.set(name, value);
        }
      }
    });
  }

  // -- what is folded -------------------------------------------------------------------------------------------------

  function openDetails(container) {
    const found = [container, ...container.querySelectorAll("details[data-keep]")].filter((each) =>
      each.matches("details[data-keep]"),
    );
    return new Map(found.map((details) => [details.dataset.keep, details.open]));
  }

  function restoreDetails(container, open) {
    for (const details of container.querySelectorAll("details[data-keep]")) {
      if (open.has(details.dataset.keep)) {
        details.open = open.get(details.dataset.keep);
      }
    }
  }

  // -- copying --------------------------------------------------------------------------------------------------------

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

  root.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-copy-url]");
    if (!target || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) {
      return;
    }
    event.preventDefault();
    const { copy: value, copyUrl } = target.dataset;
    copy(target, async () => value ?? (await load(copyUrl)).text());
  });

  return { root, text, byId, parse, load, changeAddress, setParams, openDetails, restoreDetails };
})();
