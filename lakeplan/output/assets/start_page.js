/* Loaded last: starts everything, then marks the page as ready. */
root.dataset.script = "on";
startTheme();
startSorting();
startScrolling();
requestAnimationFrame(() => { root.dataset.ready = Math.round(performance.now()); });
