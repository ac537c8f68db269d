"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const draft = (key) => `persona-label-note-${key}`;

  let state = null;
  let busy = false;
  let keysOn = localStorage.getItem("persona-label-keys") !== "off";

  // Everything that comes from outside goes in as text.
  const make = (tag, content, attributes = {}) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...[content].flat().filter((part) => part !== null && part !== undefined));
    return element;
  };
  // What would reorder or hide the words around it is shown by its number, as the judge is shown it.
  const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,
    (sign) => `\u2039U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u203a`);
  const foreign = (text) => make("bdi", visible(text));
  const title = (name) => { const words = name.replaceAll("_", " "); return words[0].toUpperCase() + words.slice(1); };
  const shortened = (text) => (text.length > 90 ? `${text.slice(0, 89).trimEnd()}…` : text);

  // Scores that mean about the same.
  const BANDS = [
    { first: 0, last: 0, words: "false beyond doubt" },
    { first: 1, last: 3, words: "mostly false" },
    { first: 4, last: 5, words: "mixed" },
    { first: 6, last: 8, words: "mostly true" },
    { first: 9, last: 9, words: "true beyond doubt" },
  ];

  const call = async (path, body) => {
    const options = body ? { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : {};
    const response = await fetch(`api/${path}${location.search}`, options);
    const data = await response.json();
    if (!response.ok) throw new Error(typeof data.detail === "string" ? data.detail : "the answer was refused");
    return data;
  };

  const act = async (path, body) => {
    if (busy) return;
    busy = true;
    document.body.setAttribute("aria-busy", "true");
    try {
      const before = state?.item?.key;
      state = await call(path, body);
      if (before && path === "answer") sessionStorage.removeItem(draft(before));
      at("error").hidden = true;
      show(before !== undefined);
    } catch (error) {
      const offline = error instanceof TypeError;
      at("error").textContent = offline
        ? "The command that serves this page has ended. Start it again: what you answered is kept."
        : `${body ? "Nothing was written: " : ""}${error.message}`;
      at("error").hidden = false;
    } finally {
      busy = false;
      document.body.removeAttribute("aria-busy");
    }
  };

  const answer = (value) => {
    if (state?.item) act("answer", { key: state.item.key, answer: value, note: at("note").value });
  };
  const skip = () => { if (state?.item) act("skip", { key: state.item.key }); };
  const undo = () => { if (state?.last) act("undo", {}); };

  const showProgress = () => {
    at("progress").replaceChildren(...state.progress.map((part) => {
      const name = title(part.dimension);
      const goal = Math.min(state.target, part.judged);
      const more = part.judged < state.target ? `, ${part.judged} judged so far` : "";
      const bar = make("progress", [], { max: state.target, value: Math.min(part.done, state.target), "aria-label": `${name}: ${part.done} of ${state.target}${more}` });
      const count = make("span", [make("b", String(part.done)), make("span", ` of ${state.target}`, { class: "of" })], { class: "count" });
      return make("li", [make("span", name, { class: "name" }), count, bar], part.done >= goal ? { class: "done" } : {});
    }));
  };

  const showLast = () => {
    const last = state.last;
    at("last").hidden = !last;
    at("undo").disabled = at("undo-last").disabled = !last;
    if (!last) { at("status").textContent = ""; return; }
    const parts = last.answer === null ? ["Skipped: "] : ["Saved ", make("b", last.answer), " for "];
    parts.push(make("q", foreign(shortened(last.claim))));
    for (const judge of last.judges) parts.push(" ", foreign(shortened(judge.model)), " said ", make("b", judge.said.join(", ")), ".");
    at("status").replaceChildren(...parts);
    const reasons = last.judges.filter((judge) => judge.reasoning);
    at("why").hidden = !reasons.length;
    at("why").open = false;
    at("reasons").replaceChildren(...reasons.map((judge) => make("p", foreign(judge.reasoning))));
  };

  const entry = (item) => {
    if ("omitted" in item) return make("li", `${item.omitted} ${item.omitted === 1 ? "message is" : "messages are"} left out here`, { class: "omitted" });
    const where = item.channel ? [" in ", foreign(`#${item.channel}`)] : item.to ? [" to ", foreign(item.to)] : [];
    const head = make("p", [make("b", foreign(item.speaker)), make("span", where, { class: "muted" }), make("span", item.id, { class: "muted id" })], { class: "who" });
    return make("li", [head, make("p", foreign(item.text), { class: "text" })]);
  };

  const showTranscript = (items) => {
    const parts = [];
    let list = null;
    let group;
    for (const item of items) {
      if (list === null || (!("omitted" in item) && item.part !== group)) {
        group = item.part;
        if (group) parts.push(make("h3", foreign(title(group))));
        list = make("ol", []);
        parts.push(list);
      }
      list.append(entry(item));
    }
    at("transcript").replaceChildren(...parts);
    at("transcript").scrollTop = 0;
  };

  const showItem = (item) => {
    at("dimension").textContent = title(item.dimension);
    at("claim").firstElementChild.textContent = visible(item.claim);
    at("persona").hidden = item.persona === null;
    at("persona").lastElementChild.textContent = visible(item.persona ?? "");
    showTranscript(item.transcript);
    at("note").value = sessionStorage.getItem(draft(item.key)) ?? item.note;
  };

  const show = (moved) => {
    at("labeller").textContent = `by ${state.labeller}`;
    showProgress();
    showLast();
    at("task").hidden = !state.item;
    at("finished").hidden = Boolean(state.item);
    if (state.item) showItem(state.item);
    if (moved) {
      scrollTo(0, 0);
      (state.item ? at("claim") : at("finished").firstElementChild).focus({ preventScroll: true });
    }
  };

  const buildScale = () => {
    at("scale").replaceChildren(...BANDS.map((band) => {
      const buttons = [];
      for (let score = band.first; score <= band.last; score += 1) {
        const button = make("button", String(score), { type: "button", "aria-label": `${score}, ${band.words}`, "aria-keyshortcuts": String(score) });
        button.addEventListener("click", () => answer(score));
        buttons.push(button);
      }
      const words = make("span", band.words, { class: "words", "aria-hidden": "true" });
      return make("div", [make("div", buttons, { class: "scores" }), words], { class: "band" });
    }));
  };

  const showKeys = () => {
    at("shortcuts").setAttribute("aria-pressed", String(keysOn));
    at("shortcuts").textContent = keysOn ? "Keys are on" : "Keys are off";
  };

  at("not-applicable").addEventListener("click", () => answer("not_applicable"));
  at("skip").addEventListener("click", skip);
  at("undo").addEventListener("click", undo);
  at("undo-last").addEventListener("click", undo);
  at("shortcuts").addEventListener("click", () => {
    keysOn = !keysOn;
    localStorage.setItem("persona-label-keys", keysOn ? "on" : "off");
    showKeys();
  });
  at("note").addEventListener("input", () => { if (state?.item) sessionStorage.setItem(draft(state.item.key), at("note").value); });
  addEventListener("keydown", (event) => {
    if (event.target === at("note")) {
      if (event.key === "Escape") at("claim").focus({ preventScroll: true });
      return;
    }
    if (!keysOn || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const key = event.key.toLowerCase();
    if (/^[0-9]$/.test(key)) answer(Number(key));
    else if (key === "n") answer("not_applicable");
    else if (key === "s") skip();
    else if (key === "u") undo();
    else return;
    event.preventDefault();
  });

  showKeys();
  act("state").then(() => { if (state) buildScale(); });
})();
