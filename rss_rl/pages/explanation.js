const data = JSON.parse(document.getElementById("data").textContent);
let shade = "chance";

/* An outcome is a list of [class, probability], or of one [0, score]. */
const isScore = data.kind === "score";
const likeliest = (outcome) => outcome.reduce((best, one) => (one[1] > best[1] ? one : best));
const shareOf = (outcome, index) => (outcome.find((one) => one[0] === index) || [index, 0])[1];

class Example {
  constructor() {
    this.flipped = null;
    this.first = isScore ? null : likeliest(data.outcome)[0];
    this.root = make("article", "example");
    const texts = make("div");
    this.lists = data.sentences.map((sentence, slot) => this.sentence(texts, sentence, slot));
    this.panel = make("aside");
    this.heading = make("h2");
    this.line = make("p", "prediction");
    this.line.setAttribute("aria-live", "polite");
    this.rest = make("div");
    this.panel.append(this.heading, this.line, this.rest);
    this.root.append(texts, this.panel);
    this.paint();
    this.show();
  }

  sentence(texts, sentence, slot) {
    const section = make("section", "sentence");
    section.append(make("h2", "", sentence.title));
    const list = make("p", "words");
    const words = sentence.words.map((text, place) => {
      const word = make("span", "word", text);
      word.setAttribute("role", "button");
      word.setAttribute("aria-pressed", "false");
      word.tabIndex = slot === 0 && place === 0 ? 0 : -1;
      Object.assign(word, { slot, place, sentence });
      word.dataset.at = slot + "-" + place;
      list.append(word, " ");
      return word;
    });
    list.addEventListener("mouseover", (event) => this.look(event.target));
    list.addEventListener("mouseleave", () => this.look(null));
    list.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) this.look(event.target);
    });
    list.addEventListener("focusout", () => this.look(null));
    list.addEventListener("click", (event) => this.flip(event.target));
    list.addEventListener("keydown", (event) => this.key(event));
    section.append(list);
    texts.append(section);
    return { list, words, sentence };
  }

  chances(word) {
    const chances = word.sentence.chances;
    return chances && chances.map((role) => role[word.place]);
  }

  /* Change of the score, or of the predicted class's probability, by a flip. */
  effect(word) {
    const after = word.sentence.flips[word.place];
    if (!after) return 0;
    if (isScore) return (after[0][1] - data.outcome[0][1]) / (data.high - data.low || 1);
    return shareOf(after, this.first) - shareOf(data.outcome, this.first);
  }

  paint() {
    for (const { words, sentence } of this.lists) {
      for (const word of words) {
        const chances = this.chances(word);
        const roles = sentence.roles[word.place];
        const chance = chances ? Math.max(...chances) : roles ? 1 : 0;
        const effect = shade === "effect" ? this.effect(word) : 0;
        word.style.setProperty("--level", (shade === "effect" ? Math.min(1, Math.abs(effect)) : chance).toFixed(3));
        word.style.setProperty("--tint", effect < 0 ? "var(--shade)" : shade === "effect" ? "var(--less)" : "var(--shade)");
        showRoles(word, (roles & 1) > 0, (roles & 2) > 0, sentence.known[word.place]);
        word.setAttribute("aria-description", this.sentences(word).join(" "));
      }
    }
  }

  role(word) {
    const roles = word.sentence.roles[word.place];
    return roleOf((roles & 1) > 0, (roles & 2) > 0);
  }

  /* A word's role in the selection, and the prediction with it forced in or out. */
  sentences(word) {
    const chances = this.chances(word);
    const role = this.role(word);
    const known = word.sentence.known[word.place] ? "" : " Not in the vocabulary.";
    const after = word.sentence.flips[word.place];
    const now = !after ? "not computed, as the text is long" : isScore ? after[0][1].toFixed(3) : this.name(likeliest(after)[0]) + " " + percent(likeliest(after)[1]);
    return [
      role[0].toUpperCase() + role.slice(1) + (chances ? ", " + chancesText(...chances) : "") + "." + known,
      "Forced " + (word.sentence.roles[word.place] ? "out: " : "in: ") + now,
    ];
  }

  look(target) {
    const word = target && target.classList.contains("word") ? target : null;
    if (!target || word) this.show(word);
  }

  flip(target) {
    if (!target.classList.contains("word")) return;
    const before = this.flipped;
    if (before) {
      before.classList.remove("flipped");
      before.setAttribute("aria-pressed", "false");
    }
    this.flipped = before === target || !target.sentence.flips[target.place] ? null : target;
    if (this.flipped) {
      target.classList.add("flipped");
      target.setAttribute("aria-pressed", "true");
    }
    this.show(target);
  }

  key(event) {
    const word = event.target;
    if (event.key === "Enter" || event.key === " ") this.flip(word);
    else if (event.key === "Escape") {
      if (this.flipped) this.flip(this.flipped);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const all = this.lists.flatMap((one) => one.words);
      const next = all[all.indexOf(word) + (event.key === "ArrowRight" ? 1 : -1)];
      if (!next) return;
      word.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else return;
    event.preventDefault();
  }

  name(index) {
    return data.names[index];
  }

  show(word) {
    const flipped = this.flipped;
    const outcome = flipped ? flipped.sentence.flips[flipped.place] : data.outcome;
    this.heading.textContent = flipped ? "Prediction after a flip" : "Prediction";
    this.headline(outcome);
    this.rest.replaceChildren(this.bars(outcome), this.about(word || flipped));
  }

  /* Announced by screen readers when it changes, but not when the focus moves. */
  headline(outcome) {
    const first = data.outcome;
    const text = isScore ? outcome[0][1].toFixed(3) : this.name(likeliest(outcome)[0]);
    const line = make("p", "prediction", text);
    if (this.flipped) {
      const forced = this.flipped.sentence.roles[this.flipped.place] ? "without “" : "with “";
      const was = isScore ? first[0][1].toFixed(3) : this.name(this.first);
      const kept = was === text ? (isScore ? "unchanged" : "still, as before") : "was " + was;
      const note = make("small", "", forced + this.flipped.textContent + "”: " + kept);
      if (was !== text && !isScore) line.classList.add("changed");
      line.append(note);
    }
    if (this.line.textContent === line.textContent) return;
    this.line.className = line.className;
    this.line.dataset.prediction = text;
    this.line.replaceChildren(...line.childNodes);
  }

  bars(outcome) {
    const bars = make("div", "bars");
    bars.setAttribute("role", "list");
    const span = data.high - data.low || 1;
    const rows = isScore
      ? [[data.low.toString(), (outcome[0][1] - data.low) / span, (data.outcome[0][1] - data.low) / span, data.high.toString()]]
      : outcome.map(([index, share]) => [this.name(index), share, shareOf(data.outcome, index), percent(share)]);
    for (const [name, share, was, text] of rows) {
      bars.append(bar(name, share, text, this.flipped ? was : undefined, "before the flip"));
    }
    return bars;
  }

  about(word) {
    const box = make("div", "facts");
    if (!word) {
      const sentences = data.sentences;
      const roles = sentences.flatMap((one) => one.roles);
      const count = (role) => roles.filter((one) => one === role).length;
      const kept = roles.length - count(0);
      const parts = [count(3) + " as head and dependent", count(1) + " only as head", count(2) + " only as dependent"];
      const how = document.body.classList.contains("one-bit") ? "" : ": " + parts.join(", ");
      box.append(make("p", "", "Of " + roles.length + " words, " + kept + " are kept (" + percent(kept / roles.length) + ")" + how + "; " + count(0) + " are not."));
      return box;
    }
    box.append(make("h2", "quoted", "“" + word.textContent + "”"));
    box.append(...this.sentences(word).map((text) => make("p", "", text)));
    return box;
  }
}

const hasOneBit = ({ chances }) => !chances || chances[0].every((chance, place) => chance === chances[1][place]);
hideRolesIf(data.sentences.every(hasOneBit));
const example = new Example();
document.getElementById("example").replaceChildren(example.root);

function setShade(value) {
  shade = value;
  const signed = value === "effect";
  document.getElementById("ramp").classList.toggle("signed", signed);
  const what = isScore ? "score" : "prediction's probability";
  document.getElementById("ramp-text").textContent = signed
    ? "a flip raises (blue) or lowers (amber) the " + what
    : "the stronger, the more probable that a word is kept";
  document.getElementById("example").classList.toggle("effects", signed);
  example.paint();
}
document.querySelectorAll("input[name=shade]").forEach((input) => {
  input.addEventListener("change", () => setShade(input.value));
});
setShade("chance");
