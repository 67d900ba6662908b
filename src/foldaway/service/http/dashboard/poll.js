// Asking again and again, gently: one question at a time, slower when the server is slow or away, and not at all while
// nobody looks.

import { Refused } from "./api.js";

const SLOWEST = 15_000;
const banner = document.getElementById("away");

export class Poll {
  /**
   * @param {() => Promise<number>} look What to ask; it gives the milliseconds until the next time.
   * @param {(refused: Refused) => void} refused What to do when waiting does not help.
   */
  constructor(look, refused) {
    this.look = look;
    this.refused = refused;
    this.faults = 0;
    this.over = false;
    this.shown = () => document.visibilityState === "visible" && this.soon(0);
    document.addEventListener("visibilitychange", this.shown);
    window.addEventListener("online", this.shown);
  }

  start() {
    this.soon(0);
    return this;
  }

  soon(wait) {
    clearTimeout(this.timer);
    if (!this.over) this.timer = setTimeout(() => this.turn(), wait);
  }

  async turn() {
    if (this.over || this.asking || document.visibilityState === "hidden") return;
    this.asking = true;
    const begun = performance.now();
    let wait;
    try {
      wait = await this.look();
      this.faults = 0;
      banner.hidden = true;
    } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      if (this.over) return;
      if (!refused.passes) {
        this.stop();
        this.refused(refused);
        return;
      }
      wait = Math.max(1000 * refused.wait, Math.min(SLOWEST, 1000 * 2 ** this.faults));
      this.faults += 1;
      tell(refused);
    } finally {
      this.asking = false;
    }
    // An answer that took long is a server with much to do: leave it ten times as long in peace.
    this.soon(Math.max(wait, 10 * (performance.now() - begun)));
  }

  stop() {
    this.over = true;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.shown);
    window.removeEventListener("online", this.shown);
    banner.hidden = true;
  }
}

function tell(refused) {
  const why = refused.status === 0 ? "The server does not answer." : `The server cannot answer now: ${refused.message}`;
  banner.textContent = `${why} What you see may be old; this page keeps trying and needs no reload.`;
  banner.hidden = false;
}
