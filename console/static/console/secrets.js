// Copies a revealed value, and forgets it when the page is left. Without this one selects it by hand.
"use strict";

(() => {
  const page = document.querySelector(".pk-revealed");
  if (!page) {
    return;
  }
  const value = document.getElementById("pk-secret");
  const button = page.querySelector("[data-copy-secret]");
  if (navigator.clipboard && window.isSecureContext) {
    button.hidden = false;
    const label = button.textContent;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(value.textContent);
        button.textContent = page.dataset.textCopied;
      } catch {
        button.textContent = page.dataset.textCopyFailed;
      }
      window.setTimeout(() => {
        button.textContent = label;
      }, 1500);
    });
  }
  // A page that is kept for the way back would still hold it.
  window.addEventListener("pagehide", () => {
    value.textContent = "";
  });
})();
