// Time travel: lanes, bars and the graph are recoloured to the state at an event of the run.
"use strict";

(() => {
  const page = window.pikkuRun;
  if (!page || !page.root.dataset.eventsUrl) {
    return;
  }
  const { root, text, byId, load, setParams } = page;
  const LETTERS = { p: "queued", q: "queued", r: "running", s: "succeeded", f: "failed" };
  let cursor = null;
  let cameFromPast = false;
  let events = null;
  let refresh = async () => {};

  async function eventData() {
    if (!events) {
      const embedded = byId("pk-events-data");
      const url = new URL(root.dataset.eventsUrl, window.location.href);
      const idle = new URL(window.location.href).searchParams.get("idle");
      if (idle) {
        url.searchParams.set("idle", idle);
      }
      events = embedded ? JSON.parse(embedded.textContent) : await (await load(url)).json();
      events.indexOfId = new Map(events.ids.map((id, index) => [id, index]));
      events.indexOfName = new Map(events.names.map((name, index) => [name, index]));
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

  const groupState = (data, states, name) => stateOfGroup((data.groups[name] || []).map((index) => states[index]));

  function setState(element, state) {
    element.dataset.present ??= element.dataset.state;
    element.dataset.state = state;
    element.querySelector(".pk-state").textContent = text(state) || text(state[0]);
  }

  // The lanes of a child run have no events here, so their bars say when they were.
  function stateOfBars(bars, moment) {
    let state = "unreached";
    for (const bar of bars) {
      if (Number(bar.dataset.from) <= moment) {
        const isOpen = Number(bar.dataset.to) > moment;
        const kind = bar.dataset.kind;
        const working = { ran: "running", failed: "running", running: "running" }[kind] || kind;
        const ended = { ran: "succeeded", failed: "failed", waiting: "succeeded" }[kind] || kind;
        state = isOpen ? working : ended;
      }
    }
    return state;
  }

  function paintBars(lane, travelling, moment) {
    for (const bar of lane.querySelectorAll(".pk-bar")) {
      const isNested = "from" in bar.dataset;
      const begins = isNested ? Number(bar.dataset.from) > moment : Number(bar.dataset.first) > cursor;
      const ends = isNested ? Number(bar.dataset.to) > moment : Number(bar.dataset.last) > cursor;
      const isFuture = travelling && (isNested || "first" in bar.dataset) && begins;
      const isOpen = travelling && !isFuture && (isNested || "last" in bar.dataset) && ends;
      bar.classList.toggle("pk-future", isFuture);
      bar.classList.toggle("pk-open", isOpen);
    }
  }

  function paintLane(lane, data, states, travelling, moment) {
    if (!travelling) {
      setState(lane, lane.dataset.present ?? lane.dataset.state);
    } else if ("nested" in lane.dataset) {
      const bars = [...lane.querySelectorAll(".pk-bar[data-from]")];
      bars.sort((one, other) => Number(one.dataset.from) - Number(other.dataset.from));
      setState(lane, stateOfBars(bars, moment));
    } else if (lane.dataset.step !== undefined) {
      setState(lane, states[data.indexOfId.get(lane.dataset.step)] ?? "unreached");
    } else {
      setState(lane, groupState(data, states, lane.dataset.group));
    }
    paintBars(lane, travelling, moment);
  }

  function paintGraph(data, states, travelling) {
    const nodes = [...root.querySelectorAll(".pk-node")];
    for (const node of nodes) {
      if (!travelling) {
        setState(node, node.dataset.present ?? node.dataset.state);
        continue;
      }
      const found = JSON.parse(node.dataset.steps).map((name) => states[data.indexOfName.get(name)] ?? "unreached");
      const group = node.dataset.fanOut;
      if (group !== undefined) {
        setState(node, group in data.groups ? groupState(data, states, group) : stateOfGroup(found));
      } else {
        setState(node, found.filter((state) => state !== "unreached").pop() ?? "unreached");
      }
    }
    for (const edge of root.querySelectorAll(".pk-edge")) {
      const reached = [edge.dataset.source, edge.dataset.target].every((end) => nodes[end].dataset.state !== "unreached");
      edge.classList.toggle("pk-untaken", edge.dataset.taken === "no" ? !travelling || !reached : travelling && !reached);
    }
  }

  function paint(data) {
    const travelling = cursor !== null;
    const lanes = byId("pk-lanes");
    lanes.classList.toggle("pk-travelling", travelling);
    root.classList.toggle("pk-in-past", travelling);
    const states = statesAt(data, travelling ? cursor : data.type.length);
    const moment = !travelling ? Infinity : cursor < 0 ? -1 : data.ms[cursor];
    for (const lane of lanes.querySelectorAll(".pk-lane[data-state]")) {
      paintLane(lane, data, states, travelling, moment);
    }
    paintGraph(data, states, travelling);
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

  const params = new URL(window.location.href).searchParams;
  if (params.has("at") && byId("pk-range")) {
    const at = Number(byId("pk-range").value);
    cursor = at < Number(byId("pk-range").max) ? at : null;
    cameFromPast = true;
  }

  page.travel = {
    to: travelTo,
    // What was replaced on the page is painted as the rest is.
    async renew() {
      events = null;
      if (cursor !== null) {
        paint(await eventData());
      }
    },
    refreshBy(given) {
      refresh = given;
    },
  };
})();
