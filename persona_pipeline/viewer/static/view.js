"use strict";
(() => {
  const root = document.documentElement;
  const at = (id) => document.getElementById(id);
  const read = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* a browser may have no storage */ } };

  // The theme of reports and of this page is one choice.
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const label = () => { at("theme").textContent = isDark() ? "Light theme" : "Dark theme"; };
  if (["dark", "light"].includes(read("persona-theme"))) root.dataset.theme = read("persona-theme");
  at("theme").hidden = at("keys").hidden = false;
  label();
  at("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep("persona-theme", root.dataset.theme);
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);

  const keysOn = at("keys-on");
  keysOn.checked = read("persona-view-keys") !== "off";
  keysOn.addEventListener("change", () => keep("persona-view-keys", keysOn.checked ? "on" : "off"));
  at("keys").addEventListener("click", () => at("help").showModal());

  // What has no value does not belong into an address that is sent.
  addEventListener("submit", (event) => {
    if (event.target.method !== "get") return;
    for (const field of event.target.elements) if (field.name && !field.value) field.disabled = true;
  });
  addEventListener("pageshow", () => { for (const field of document.querySelectorAll("form [name]:disabled")) field.disabled = false; });
  for (const field of document.querySelectorAll(".filter select, .filter input[type=checkbox]")) field.addEventListener("change", () => field.form.requestSubmit());

  const say = (text) => { at("said").textContent = text; };
  const give = async (form, button) => {
    const body = new URLSearchParams({ seen: form.elements.seen.value, thumb: button.value });
    const response = await fetch(form.action, { method: "POST", body, headers: { "X-Fragment": "1" } });
    const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = parsed.querySelector("form.thumbs");
    if (!fresh) throw new Error(parsed.querySelector("main .lead")?.textContent ?? "the answer was refused");
    const back = new URL(form.action).searchParams.get("back");
    if (back) fresh.setAttribute("action", `${fresh.getAttribute("action")}&back=${encodeURIComponent(back)}`);
    const had = form.contains(document.activeElement) ? document.activeElement.dataset.thumb : null;
    form.replaceWith(document.adoptNode(fresh));
    if (had) fresh.querySelector(`[data-thumb="${had}"]`).focus();
    at("undo").hidden = false;
    const pressed = fresh.querySelector('[aria-pressed="true"]');
    if (response.ok) say(pressed ? `Kept: ${pressed.innerText.trim()}` : "Taken back");
  };
  addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches(".thumbs") || form.dataset.plain) return;
    event.preventDefault();
    give(form, event.submitter).catch((error) => {
      const text = error instanceof TypeError ? "The command that serves this page has ended. Start it again." : `Nothing was kept: ${error.message}`;
      const told = form.querySelector(".warn-text") ?? form.insertBefore(document.createElement("p"), form.firstChild);
      told.className = "warn-text";
      told.setAttribute("role", "alert");
      told.textContent = text;
    });
  });

  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  const current = () => document.activeElement?.closest("[data-row]") ?? null;
  const go = (step) => {
    const all = rows();
    const now = all.indexOf(current());
    const next = all[now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + step, 0), all.length - 1)];
    if (!next) return;
    (next.matches("[tabindex]") ? next : next.querySelector("summary, a.open"))?.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  const thumb = (which) => (current() ?? document.querySelector("[data-main]"))?.querySelector(`[data-thumb="${which}"]`)?.click();
  const actions = {
    j: () => go(1),
    k: () => go(-1),
    y: () => thumb("up"),
    n: () => thumb("down"),
    x: () => thumb("unclear"),
    u: () => { if (!at("undo").hidden) at("undo").requestSubmit(); },
    "/": () => at("q")?.focus(),
    "?": () => at("help").showModal(),
    Enter: () => { if (document.activeElement === current()) current()?.querySelector("a.open")?.click(); else return false; },
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = actions[event.key];
    if (!action || (!keysOn.checked && event.key !== "Enter") || action() === false) return;
    event.preventDefault();
  });
})();
