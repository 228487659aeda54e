"use strict";
// Before anything is drawn, so that a dark page never flashes white.
try {
  const kept = localStorage.getItem("cans-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
} catch { /* storage is switched off: the system decides */ }
