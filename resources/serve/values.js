// A rectangle of a tensor's values, as the window's values pane: from afar thinned to a picture, from near as numbers.
import { button, color, countText, css, element, fill, follow, get, numberText } from "./common.js";

const kPicture = 128, kNumbers = 16;  // values each way

// The picture that is shown, in the colors of another theme.
let recolor = null;
follow("theme", () => recolor && recolor());

// Two colors away from zero, as in the window; NaN and infinities stand out.
function paint(canvas, said, log) {
  const pen = canvas.getContext("2d"), scale = Math.max(1, Math.floor(512 / Math.max(said.rows, said.columns, 1)));
  canvas.width = Math.max(1, said.columns * scale);
  canvas.height = Math.max(1, said.rows * scale);
  const size = (value) => (log ? Math.log1p(Math.abs(value) * 1e6) : Math.abs(value));
  let most = 0;
  for (const value of said.values) if (typeof value === "number") most = Math.max(most, size(value));
  const surface = color("surface"), up = color("accent"), down = color("bad"), nan = color("nan"), text = color("text");
  said.values.forEach((value, i) => {
    const share = typeof value !== "number" || most === 0 ? 0 : size(value) / most;
    const tone = value > 0 ? up : down;
    pen.fillStyle = css(value === "nan" ? nan : typeof value === "string" ? text : surface.map((part, k) => Math.round(part + (tone[k] - part) * share)));
    pen.fillRect((i % said.columns) * scale, Math.floor(i / said.columns) * scale, scale, scale);
  });
  return scale;
}

function statistics(values) {
  const finite = values.filter((value) => typeof value === "number");
  let least = Infinity, most = -Infinity, sum = 0, zero = 0;
  for (const value of finite) { least = Math.min(least, value); most = Math.max(most, value); sum += value; zero += value === 0; }
  const mean = sum / finite.length;
  const deviation = Math.sqrt(finite.reduce((all, value) => all + (value - mean) ** 2, 0) / finite.length);
  const other = values.length - finite.length, nan = values.filter((value) => value === "nan").length;
  return [["least", finite.length ? least : null], ["greatest", finite.length ? most : null], ["mean", finite.length ? mean : null],
    ["standard deviation", finite.length ? deviation : null], ["zeros", zero], ["NaN", nan], ["infinities", other - nan]];
}

export function sliceView(tensor) {
  const axes = tensor.shape.length;
  if (tensor.shape.some((length) => length === 0)) return element("p", { class: "quiet" }, "It has no elements.");
  const view = { down: axes - 2, across: axes - 1, at: tensor.shape.map(() => 0), top: 0, left: 0, height: null, width: null, log: false };
  const controls = element("div", { class: "bar" }), result = element("div", { "aria-live": "polite" });
  const length = (axis) => (axis < 0 ? 1 : tensor.shape[axis]);
  let asked = 0, last = null;

  async function read() {
    const mine = ++asked;
    if (!last) fill(result, element("p", { class: "quiet" }, "Reading …"));
    const wanted = { name: tensor.name, top: view.top, left: view.left, height: view.height ?? length(view.down), width: view.width ?? length(view.across), rows: kPicture, columns: kPicture };
    if (view.down >= 0) wanted.down = view.down;
    if (view.across >= 0) wanted.across = view.across;
    view.at.forEach((index, d) => { wanted["at" + d] = index; });
    try {
      const said = await get("slice", wanted);
      if (mine === asked) { last = said; show(); }
    } catch (error) { if (mine === asked) fill(result, element("p", { class: "error" }, error.message)); }
  }

  const range = (axis, from, count, step) => (axis < 0 ? "one value" : "dim " + axis + ": " + countText(from) + "–" + countText(Math.min(length(axis), from + count * step) - 1) + (step > 1 ? ", every " + step : ""));

  // Where a click goes nearer: a quarter of what is seen, around it.
  function nearer(row, column) {
    const height = last.rows * last.row_step, width = last.columns * last.column_step;
    const [high, wide] = [height, width].map((now) => Math.max(Math.min(now, kNumbers), Math.ceil(now / 4)));
    view.top = Math.max(0, Math.min(length(view.down) - high, last.top + row * last.row_step - Math.floor(high / 2)));
    view.left = Math.max(0, Math.min(length(view.across) - wide, last.left + column * last.column_step - Math.floor(wide / 2)));
    [view.height, view.width] = [high, wide];
    read();
  }
  const whole = () => { [view.top, view.left, view.height, view.width] = [0, 0, null, null]; read(); };
  function move(down, across) {
    const height = view.height ?? length(view.down), width = view.width ?? length(view.across);
    view.top = Math.max(0, Math.min(length(view.down) - height, view.top + down * height));
    view.left = Math.max(0, Math.min(length(view.across) - width, view.left + across * width));
    [view.height, view.width] = [height, width];
    read();
  }

  function numbers() {
    const said = last, head = element("tr", {}, element("th", {}, ""), ...Array.from({ length: said.columns }, (_, c) => element("th", { class: "number" }, countText(said.left + c))));
    const rows = Array.from({ length: said.rows }, (_, r) => element("tr", {}, element("th", { class: "number" }, countText(said.top + r)),
      ...said.values.slice(r * said.columns, (r + 1) * said.columns).map((value) => element("td", { class: "number" + (typeof value === "string" ? " error" : "") }, numberText(value)))));
    return element("div", { class: "wide" }, element("table", { class: "numbers" }, element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  function show() {
    const said = last, near = said.row_step === 1 && said.column_step === 1 && said.rows <= kNumbers && said.columns <= kNumbers;
    const words = [range(view.down, said.top, said.rows, said.row_step), range(view.across, said.left, said.columns, said.column_step)].filter((text) => text !== "one value").join("; ") || "one value";
    const parts = [element("p", { class: "quiet small" }, words)], focused = result.contains(document.activeElement);
    if (near) {
      parts.push(numbers());
    } else {
      const under = element("p", { class: "small mono", role: "status" }, "A click, or Enter for the middle, goes nearer, down to the numbers; arrow keys move.");
      const canvas = element("canvas", { class: "values", role: "img", tabindex: 0, "aria-label": "Values of the slice: " + words });
      if (focused) queueMicrotask(() => canvas.focus());
      const cell = (event) => {
        const box = canvas.getBoundingClientRect();
        return [Math.min(said.rows - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * said.rows))), Math.min(said.columns - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * said.columns)))];
      };
      canvas.addEventListener("pointermove", (event) => {
        const [row, column] = cell(event), index = [...view.at];
        if (view.down >= 0) index[view.down] = said.top + row * said.row_step;
        if (view.across >= 0) index[view.across] = said.left + column * said.column_step;
        under.textContent = "[" + index.join(", ") + "] = " + numberText(said.values[row * said.columns + column]);
      });
      canvas.addEventListener("click", (event) => nearer(...cell(event)));
      canvas.addEventListener("keydown", (event) => {
        const keys = { Enter: () => nearer(said.rows >> 1, said.columns >> 1), ArrowUp: () => move(-1, 0), ArrowDown: () => move(1, 0), ArrowLeft: () => move(0, -1), ArrowRight: () => move(0, 1) };
        if (!keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
      });
      recolor = () => paint(canvas, said, view.log);
      recolor();
      parts.push(canvas, under);
    }
    parts.push(element("dl", { class: "figures" }, ...statistics(said.values).flatMap(([name, value]) => [element("dt", {}, name), element("dd", { class: (name === "NaN" || name === "infinities") && value > 0 ? "error" : null }, numberText(value))])),
      element("p", { class: "quiet small" }, "of the " + countText(said.values.length) + " values that are shown"));
    fill(result, ...parts);
  }

  const start = button("Show a slice", () => {
    start.remove();
    const axis = (name, words) => axes > 1 && element("label", {}, words + " ", element("select", { onchange: (event) => {
      const chosen = Number(event.target.value), other = name === "down" ? "across" : "down";
      if (chosen === view[other]) view[other] = view[name];
      view[name] = chosen;
      build();
      whole();
    } }, ...tensor.shape.map((size, d) => element("option", { value: d, selected: d === view[name] }, "dim " + d + " (" + countText(size) + ")"))));
    function build() {
      fill(controls, axis("down", "Down"), axis("across", "Across"),
        ...tensor.shape.map((size, d) => d !== view.down && d !== view.across && element("label", {}, "dim " + d + " at ", element("input", { type: "number", min: 0, max: size - 1, value: view.at[d],
          onchange: (event) => { view.at[d] = Math.max(0, Math.min(size - 1, Math.floor(Number(event.target.value)) || 0)); event.target.value = view.at[d]; read(); } }))),
        button("All", whole), button("↑", () => move(-1, 0), { "aria-label": "Up" }), button("↓", () => move(1, 0), { "aria-label": "Down" }), button("←", () => move(0, -1), { "aria-label": "Left" }), button("→", () => move(0, 1), { "aria-label": "Right" }),
        button("Numbers", () => { [view.top, view.left] = [0, 0]; [view.height, view.width] = [Math.min(kNumbers, length(view.down)), Math.min(kNumbers, length(view.across))]; read(); }),
        element("label", {}, element("input", { type: "checkbox", checked: view.log, onchange: (event) => { view.log = event.target.checked; if (last) show(); } }), "Log scale"));
    }
    build();
    read();
  });
  return element("div", { class: "slice" }, start, controls, result);
}
