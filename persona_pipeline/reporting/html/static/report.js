"use strict";
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const stored = () => { try { return localStorage.getItem("persona-theme"); } catch { return null; } };
  const remember = (value) => { try { localStorage.setItem("persona-theme", value); } catch { /* a file may have no storage */ } };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const label = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  if (stored() === "dark" || stored() === "light") root.dataset.theme = stored();
  theme.hidden = false;
  label();
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);

  const expand = document.getElementById("expand");
  if (expand) {
    expand.hidden = false;
    expand.addEventListener("click", () => {
      const open = expand.getAttribute("aria-expanded") !== "true";
      for (const part of document.querySelectorAll("details.dimension")) part.open = open;
      expand.setAttribute("aria-expanded", String(open));
      expand.textContent = open ? "Close all propositions" : "Open all propositions";
    });
  }
  addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
})();
