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

  // What an address names may stand in a fold.
  const unfold = () => {
    const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (!target) return;
    for (const part of [target, target.querySelector(":scope > details"), target.closest("details")]) if (part && part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  const expand = document.getElementById("expand");
  if (expand) {
    expand.hidden = false;
    expand.addEventListener("click", () => {
      const open = expand.getAttribute("aria-expanded") !== "true";
      for (const part of document.querySelectorAll("details.dimension, details.agent")) part.open = open;
      expand.setAttribute("aria-expanded", String(open));
      expand.textContent = open ? "Close all claims" : "Open all claims";
    });
  }
  const find = document.getElementById("find");
  if (find) {
    const text = document.getElementById("find-text");
    const count = document.getElementById("find-count");
    const nobody = document.getElementById("find-nobody");
    const rows = [...document.querySelectorAll("#everybody-table tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
    const show = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let found = 0;
      for (const [row, said] of rows) {
        const hit = words.every((word) => said.includes(word));
        row.hidden = !hit;
        found += hit;
      }
      count.textContent = words.length ? `${found.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
      nobody.hidden = found > 0;
    };
    find.hidden = false;
    text.addEventListener("input", show);
    show();
  }
  addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
})();
