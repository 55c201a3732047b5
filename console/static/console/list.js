// The lists work without this. It closes menus, and renews a list of running runs that was left in the background.
"use strict";

(() => {
  const opened = Date.now();
  document.addEventListener("visibilitychange", () => {
    const stale = Date.now() - opened > 60_000;
    if (!document.hidden && stale && document.querySelector("#result_list .pk-is-running")) {
      window.location.reload();
    }
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
})();
