// Trees of scopes work without this. With it, what a ticked scope brings along is shown as ticked, and locked, at once.
"use strict";

(() => {
  for (const tree of document.querySelectorAll("[data-tree]")) {
    const boxes = [...tree.querySelectorAll("input[type=checkbox]")];
    const byName = new Map(boxes.map((box) => [box.value, box]));
    // What one has ticked oneself, whatever a broader scope does to it.
    const own = new Set(boxes.filter((box) => box.checked && (!box.disabled || "lock" in box.dataset)).map((box) => box.value));

    const covering = (name) => {
      const parts = name.split(":");
      for (let length = 1; length < parts.length; length += 1) {
        const above = parts.slice(0, length).join(":");
        if (own.has(above)) {
          return above;
        }
      }
      return "";
    };

    const show = () => {
      for (const box of boxes) {
        const by = covering(box.value);
        box.checked = Boolean(by) || own.has(box.value);
        box.disabled = Boolean(by) || "lock" in box.dataset;
        const item = box.closest("li");
        item.classList.toggle("pk-is-locked", box.disabled);
        const brought = item.querySelector("[data-brought]");
        brought.hidden = !by;
        if (by) {
          brought.textContent = brought.dataset.text.replace("…", by);
        }
      }
    };

    for (const brought of tree.querySelectorAll("[data-brought]")) {
      const name = brought.closest("li").querySelector("input").value;
      brought.dataset.text = brought.hidden ? brought.textContent : brought.textContent.replace(covering(name), "…");
    }
    tree.addEventListener("change", (event) => {
      if (byName.has(event.target.value)) {
        own[event.target.checked ? "add" : "delete"](event.target.value);
        show();
      }
    });
  }
})();
