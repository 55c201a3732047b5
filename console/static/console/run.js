// The page of a run works without this. With it, steps and child runs open in place, and filters apply at once.
"use strict";

(() => {
  const page = window.pikkuRun;
  const panel = document.getElementById("pk-panel");
  if (!page || !panel) {
    return;
  }
  const { root, text, byId, parse, load, changeAddress, setParams, openDetails, restoreDetails } = page;

  // -- opening a step -------------------------------------------------------------------------------------------------

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
    const stepId = link.dataset.stepId ?? link.closest(".pk-lane").dataset.step;
    markSelected(stepId);
    setParams({ step: stepId });
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

  async function renewPanel() {
    const card = panel.querySelector(".pk-panel[data-step]");
    if (!card) {
      const current = root.querySelector(".pk-lane a.pk-label[aria-current]");
      if (current) {
        await showPanel(current.dataset.stepUrl);
      }
      return;
    }
    const label = root.querySelector(`.pk-lane[data-step="${CSS.escape(card.dataset.step)}"] a.pk-label`);
    const isSettled = ["succeeded", "failed"].includes(card.dataset.state);
    if (label && !isSettled) {
      await showPanel(label.dataset.stepUrl);
    }
  }

  page.steps = {
    mark: markSelected,
    renew: renewPanel,
    selected: () =>
      root.querySelector(".pk-lane.pk-selected")?.dataset.step ?? panel.querySelector("[data-step]")?.dataset.step,
  };

  // -- opening a child run --------------------------------------------------------------------------------------------

  async function toggleRun(link) {
    const runId = link.dataset.openRun;
    const before = window.location.href;
    changeAddress((params) => {
      const opened = params.getAll("open");
      const others = opened.filter((each) => each !== runId);
      params.delete("open");
      for (const each of others.length === opened.length ? [...others, runId] : others) {
        params.append("open", each);
      }
    });
    try {
      await page.refresh({ grow: true });
    } catch {
      window.history.replaceState(null, "", before);
      window.location.assign(link.href);
    }
  }

  // -- wiring ---------------------------------------------------------------------------------------------------------

  const plainClick = (event) => event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

  root.addEventListener("click", (event) => {
    const target = event.target.closest("a[data-step-url], a[data-open-run], a[data-at], #pk-previous, #pk-next, #pk-now");
    if (!target || !plainClick(event)) {
      return;
    }
    event.preventDefault();
    if (target.matches("[data-step-url]")) {
      openStep(target);
    } else if (target.matches("[data-open-run]")) {
      toggleRun(target);
    } else if (target.matches("[data-at]")) {
      page.travel.to(Number(target.dataset.at));
    } else if (target.id === "pk-now") {
      page.travel.to(null);
    } else {
      const position = Number(byId("pk-position").textContent) - 1;
      page.travel.to(target.id === "pk-previous" ? position - 1 : position + 1);
    }
  });

  // What has the role of a button is pressed by the space bar as well.
  root.addEventListener("keydown", (event) => {
    if (event.key === " " && event.target.matches?.("a[role=button]")) {
      event.preventDefault();
      event.target.click();
    }
  });

  const tools = byId("pk-tools");
  if (tools) {
    let waiting = null;
    const apply = async () => {
      const chosen = new FormData(tools);
      setParams({ state: chosen.get("state"), name: chosen.get("name").trim(), idle: chosen.get("idle"), page: null });
      try {
        await page.refresh({ grow: true });
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
})();
