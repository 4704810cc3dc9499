"use strict";
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const select = document.getElementById("sort-by");
  const descending = document.getElementById("descending");
  const heads = [...table.tHead.rows[0].cells];

  // Numbers by size, texts by letters; cells without a value always come last.
  const compare = (column, sign) => (one, two) => {
    const [a, b] = [one, two].map((row) => row.cells[column + 1].dataset.value);
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
    return sign * order;
  };

  const sort = () => {
    const sign = descending.checked ? -1 : 1;
    const rows = [...body.rows].sort((one, two) => one.dataset.order - two.dataset.order);
    if (select.value !== "") rows.sort(compare(Number(select.value), sign));
    else if (sign < 0) rows.reverse();
    body.append(...rows);
    heads.forEach((head, index) => {
      if (select.value !== "" && index === Number(select.value) + 1) {
        head.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
      } else {
        head.removeAttribute("aria-sort");
      }
    });
  };

  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    descending.checked = select.value === button.dataset.column && !descending.checked;
    select.value = button.dataset.column;
    sort();
  });
  select.addEventListener("change", sort);
  descending.addEventListener("change", sort);
  document.getElementById("all-metrics").addEventListener("change", (event) => {
    table.classList.toggle("all", event.target.checked);
  });

  // A case's link opens its details.
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", open);
  open();

  // Values at the pointer; a tap shows them too, where there is no pointer.
  const tip = document.getElementById("tip");
  const show = (event) => {
    const point = event.target.closest?.(".points circle");
    const cell = event.type === "click" ? event.target.closest?.("td[title]") : null;
    const text = point ? point.querySelector("title").textContent : cell?.title;
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const [left, top] = [event.clientX + 14, event.clientY + 14];
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${top + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : top}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("click", show);

  // Paper cannot be opened: print the plots of every case.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.case:not([open])")];
    closed.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));
})();
