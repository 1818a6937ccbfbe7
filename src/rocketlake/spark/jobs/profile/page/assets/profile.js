"use strict";
// Reads values out of the plots and sorts tables. Every text goes in as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("readouts").textContent);

  const span = (parts) => {
    const made = document.createElement("span");
    made.append(...parts);
    return made;
  };

  for (const canvas of document.querySelectorAll("[data-plot]")) {
    const plot = data[canvas.dataset.plot];
    const cursor = canvas.querySelector(".cursor");
    const readout = document.getElementById("read-" + canvas.dataset.plot);
    const count = plot.labels.length;
    let at = -1;

    const show = (step) => {
      at = Math.min(Math.max(step, 0), count - 1);
      cursor.hidden = false;
      cursor.style.left = (100 * at) / count + "%";
      cursor.style.width = 100 / count + "%";
      const moment = document.createElement("b");
      moment.textContent = plot.labels[at];
      const parts = [span([moment])];
      plot.names.forEach((name, index) => {
        const swatch = document.createElement("i");
        swatch.className = "swatch " + plot.colors[index];
        const label = document.createElement("bdi");
        label.textContent = name.length > 40 ? name.slice(0, 39) + "…" : name;
        const value = document.createElement("b");
        value.textContent = plot.texts[index][at];
        parts.push(span([swatch, label, " ", value]));
      });
      readout.replaceChildren(...parts);
    };

    const hide = () => {
      cursor.hidden = true;
      readout.replaceChildren();
    };
    const follow = (event) => {
      const box = canvas.getBoundingClientRect();
      show(Math.floor(((event.clientX - box.left) / box.width) * count));
    };
    canvas.addEventListener("pointermove", follow);
    canvas.addEventListener("pointerdown", follow);
    canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    canvas.addEventListener("blur", hide);
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      show(at < 0 && move === 1 ? 0 : at + move);
    });
  }

  for (const table of document.querySelectorAll("table[data-sort]")) {
    const body = table.tBodies[0];
    table.tHead.rows[0].querySelectorAll("th").forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const isNumber = head.classList.contains("number");
        const now = head.getAttribute("aria-sort");
        const order = now === null ? (isNumber ? -1 : 1) : now === "ascending" ? -1 : 1;
        for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", order === 1 ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.v ?? "";
        const rows = [...body.rows];
        rows.sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          const [m, n] = [Number(x), Number(y)];
          const isPlain = x !== "" && y !== "" && !Number.isNaN(m) && !Number.isNaN(n);
          return order * (isPlain ? m - n : x < y ? -1 : x > y ? 1 : 0);
        });
        body.append(...rows);
      });
    });
  }
})();
