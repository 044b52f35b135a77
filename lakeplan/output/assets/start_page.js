/* Last: everything begins, and the page says that it can be used. */
root.dataset.script = "on";
startTheme();
startSorting();
startScrolling();
requestAnimationFrame(() => { root.dataset.ready = Math.round(performance.now()); });
