const percent = (share) => (100 * share).toFixed(1) + "%";

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/* A share as a bar; if there was another one before, a mark with a tooltip shows it. */
function bar(name, share, text, was, tooltip) {
  const within = (value) => percent(Math.max(0, Math.min(1, value)));
  const track = make("div", "track");
  const fill = make("div", "fill");
  fill.style.width = within(share);
  track.append(fill);
  if (was !== undefined) {
    const mark = make("div", "was");
    mark.style.left = within(was);
    mark.title = tooltip;
    track.append(mark);
  }
  const label = make("span", "name", name);
  label.title = name;
  const row = make("div", "row");
  row.setAttribute("role", "listitem");
  row.append(label, track, make("span", "share", text));
  return row;
}

function showRoles(word, head, dependent, known) {
  word.classList.toggle("kept", head || dependent);
  word.classList.toggle("out", !head && !dependent);
  word.classList.toggle("head", head);
  word.classList.toggle("dependent", dependent);
  word.classList.toggle("unknown", !known);
}

/* A policy with one bit a word gives both roles the same probability: then there are no roles to tell. */
const hideRolesIf = (oneBit) => document.body.classList.toggle("one-bit", oneBit);

function roleOf(head, dependent) {
  if (!head && !dependent) return "not kept";
  if (document.body.classList.contains("one-bit")) return "kept";
  return head ? (dependent ? "head and dependent" : "head") : "dependent";
}

function chancesText(head, dependent) {
  if (head === dependent) return "probability " + head.toFixed(2);
  return "probability " + head.toFixed(2) + " as head, " + dependent.toFixed(2) + " as dependent";
}
