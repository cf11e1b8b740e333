const MOST_CLASSES = 8;
const PAUSE_MS = 250;
const byId = (id) => document.getElementById(id);
const slider = byId("share");
let run = null;
let fields = [];
let byShare = false;

/* The token is in the address after #, which browsers do not send; remove it from the address. */
function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  sessionStorage.setItem("token", found);
  history.replaceState(null, "", location.pathname);
}

async function ask(path, body) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.status === 401) throw new Error("This server needs a token: open the address that it printed, which ends in #token=…");
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error.replace(found.field + ": ", ""));
  return found;
}

const texts = () => fields.map((field) => field.value);
const complete = () => texts().every((text) => text.trim());
const isKept = (word) => word.head || word.dependent;
const hasOneBit = (answer) => answer.sentences.flat().every((word) => word.head_probability === word.dependent_probability);

/* The words of the texts, the prediction from those kept, and the policy's own selection. */
class Run {
  constructor(shown) {
    this.shown = shown;
    this.keep = null;
    this.own = null;
    this.working = false;
    this.again = false;
    this.root = make("article", "card run");
    this.heading = make("p", "prediction");
    this.heading.setAttribute("aria-live", "polite");
    this.bars = make("div", "bars");
    this.bars.setAttribute("role", "list");
    this.answer = make("div", "answer");
    this.answer.append(this.heading, this.bars);
    this.lists = shown.texts.map((title) => this.list(title));
    this.root.setAttribute("aria-label", shown.name);
    this.trouble = make("p", "failed");
    this.trouble.setAttribute("role", "status");
    const texts = make("div");
    texts.append(...this.lists.map((list) => list.section));
    this.view = make("div", "shown");
    this.view.append(this.answer, texts);
    this.view.hidden = true;
    const busy = make("p", "busy", "computing…");
    this.root.append(make("p", "note", shown.about), busy, this.trouble, this.view);
  }

  list(title) {
    const section = make("section", "sentence");
    const words = make("p", "words");
    words.addEventListener("click", (event) => this.toggle(event.target.closest(".word")));
    words.addEventListener("keydown", (event) => this.move(event));
    section.append(make("h2", "", title), words);
    return { section, words, buttons: [], texts: null };
  }

  /* Request the current state; if a request is pending, repeat once after it. */
  async refresh() {
    this.again = true;
    if (this.working) return;
    this.working = true;
    this.root.classList.add("stale");
    while (this.again) {
      this.again = false;
      try {
        if (complete()) await this.fetch();
        else this.clear();
      } catch (error) {
        this.trouble.textContent = error.message;
      }
    }
    this.working = false;
    this.root.classList.remove("stale");
  }

  async fetch() {
    const given = { texts: texts() };
    const key = JSON.stringify(given.texts);
    if (this.own && this.own.key !== key) this.keep = null;
    const wanted = this.keep ? { ...given, keep: this.keep } : byShare && this.shown.selects ? { ...given, share: slider.value / 100 } : null;
    const examples = [];
    if (!this.own || this.own.key !== key) examples.push(given);
    if (wanted) examples.push(wanted);
    let answer = this.own && this.own.answer;
    if (examples.length) {
      const found = (await ask("predict", { examples })).examples;
      if (examples[0] === given) this.own = { key, answer: found[0] };
      answer = wanted ? found.at(-1) : found[0];
    }
    if (key !== JSON.stringify(texts())) return;
    this.trouble.textContent = "";
    this.show(wanted ? answer : this.own.answer);
  }

  clear() {
    this.trouble.textContent = "";
    this.view.hidden = true;
    byId("examples").hidden = !this.shown.examples.length;
  }

  show(answer) {
    this.found = answer;
    this.view.hidden = false;
    byId("examples").hidden = true;
    hideRolesIf(hasOneBit(answer));
    answer.sentences.forEach((words, slot) => this.showWords(this.lists[slot], words, this.own.answer.sentences[slot]));
    const all = answer.sentences.flat();
    const kept = all.filter(isKept).length;
    this.headline(answer, kept + " of " + all.length + " words kept (" + Math.round(100 * answer.kept) + "%)");
    this.drawBars(answer);
    if (!byShare && this.shown.selects) showShare(answer.kept);
  }

  showWords(list, words, own) {
    const written = JSON.stringify(words.map((word) => word.word));
    if (written !== list.texts) {
      list.texts = written;
      list.buttons = words.map((word) => {
        const button = make("button", "word", word.word);
        button.type = "button";
        return button;
      });
      list.words.replaceChildren(...list.buttons.flatMap((button) => [button, " "]));
    }
    list.buttons.forEach((button, place) => this.paint(button, words[place], own[place]));
  }

  paint(button, word, own) {
    const kept = isKept(word);
    const scored = word.head_probability !== undefined;
    const score = scored ? Math.max(word.head_probability, word.dependent_probability) : Number(kept);
    button.style.setProperty("--level", score.toFixed(3));
    showRoles(button, word.head, word.dependent, word.known);
    button.classList.toggle("flipped", kept !== isKept(own));
    button.setAttribute("aria-pressed", String(kept));
    const chances = scored ? chancesText(word.head_probability, word.dependent_probability) : "";
    const facts = [roleOf(word.head, word.dependent), chances, word.known ? "" : "not in the vocabulary"].filter(Boolean).join(", ");
    button.title = facts;
  }

  toggle(button) {
    if (!button) return;
    this.keep = this.found.sentences.map((words) => words.map(isKept));
    this.lists.forEach((list, slot) => {
      const place = list.buttons.indexOf(button);
      if (place >= 0) this.keep[slot][place] = !this.keep[slot][place];
    });
    showOwn();
    this.refresh();
  }

  move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const buttons = this.lists.flatMap((list) => list.buttons);
    const next = buttons[buttons.indexOf(event.target) + step];
    if (next) next.focus();
    event.preventDefault();
  }

  /* [name, share of the bar, text] of each bar. */
  rows(answer) {
    const shares = answer.class_probabilities;
    if (shares) return Object.entries(shares).map(([name, share]) => [name, share, percent(share)]);
    const { low, high } = this.shown;
    return [[String(low), (answer.prediction - low) / (high - low || 1), String(high)]];
  }

  headline(answer, kept) {
    const own = this.own.answer;
    const shown = (one) => (typeof one.prediction === "number" ? one.prediction.toFixed(3) : one.prediction === null ? "no prediction: the run trained no classifier" : one.prediction);
    const note = shown(own) === shown(answer) ? "" : "; “" + shown(own) + "” from the policy's own choice";
    this.heading.replaceChildren(shown(answer), make("small", "", kept + note + (answer.note && "; " + answer.note)));
    this.heading.dataset.prediction = shown(answer);
  }

  drawBars(answer) {
    this.bars.replaceChildren();
    if (answer.prediction === null) return;
    const before = new Map(this.rows(this.own.answer).map(([name, share]) => [name, share]));
    let rows = this.rows(answer);
    if (rows.length > MOST_CLASSES) rows = rows.sort((a, b) => b[1] - a[1]).slice(0, MOST_CLASSES);
    for (const [name, share, text] of rows) {
      const was = answer === this.own.answer ? undefined : before.get(name);
      this.bars.append(bar(name, share, text, was, "from the policy's own choice"));
    }
  }
}

function showShare(share) {
  slider.value = Math.round(100 * share);
  byId("share-shown").textContent = Math.round(100 * share) + "%";
  slider.setAttribute("aria-valuetext", Math.round(100 * share) + " percent of the words");
}

function showOwn() {
  byId("own").setAttribute("aria-pressed", String(!byShare && !run.keep));
}

/* Forget clicked words, and refresh. */
function readAgain() {
  run.keep = null;
  showOwn();
  slider.disabled = byId("own").disabled = !complete() || !run.shown.selects;
  run.refresh();
}

function addField(title, index) {
  const box = make("div");
  const label = make("label", "", title);
  const field = make("textarea");
  field.id = label.htmlFor = "text-" + index;
  field.placeholder = "Type or paste here";
  field.spellcheck = false;
  let pause;
  field.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(readAgain, PAUSE_MS);
  });
  box.append(label, field);
  byId("texts").append(box);
  return field;
}

/* A button that fills in the texts of an example. */
function addExample(texts) {
  const button = make("button", "", texts.join(" · "));
  button.type = "button";
  button.addEventListener("click", () => {
    fields.forEach((field, slot) => (field.value = texts[slot]));
    readAgain();
  });
  byId("examples").append(button);
}

async function start() {
  takeToken();
  try {
    const shown = await ask("model");
    fields = shown.texts.map(addField);
    run = new Run(shown);
    byId("run").replaceChildren(run.root);
    shown.examples.forEach(addExample);
    document.title = byId("title").textContent = "What " + shown.name + " reads";
    readAgain();
  } catch (error) {
    byId("status").textContent = error.message;
  }
}

slider.addEventListener("input", () => {
  byShare = true;
  showShare(slider.value / 100);
  readAgain();
});
byId("own").addEventListener("click", () => {
  byShare = false;
  readAgain();
});
byId("form").addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", () => location.reload());
start();
