// Which page is shown: the sign-in without a token, the list of trials at #/, a trial at #/trials/NAME.

import { token } from "./api.js";
import { h, say } from "./dom.js";
import { showList } from "./list.js";
import { NOT_VALID, showSignIn } from "./sign_in.js";
import { showTrial } from "./trial.js";

const view = document.getElementById("view");
const leave = document.getElementById("leave");
let end = () => {};
let words = "";

function nameIn(hash) {
  const found = /^#\/trials\/(.+)$/.exec(hash);
  try {
    return found && decodeURIComponent(found[1]);
  } catch {
    return null;
  }
}

function show() {
  end();
  view.replaceChildren();
  say(document.getElementById("said"), "");
  leave.hidden = !token.get();
  const name = nameIn(location.hash);
  document.title = name ? `${name} · foldaway` : "foldaway";
  if (!token.get()) end = showSignIn(view, words, show);
  else if (name) end = showTrial(view, name, refused);
  else end = showList(view, refused);
  words = "";
}

/** What to do when waiting does not help. */
function refused(why) {
  if (why.status === 401) {
    token.forget();
    words = NOT_VALID;
    show();
  } else {
    view.replaceChildren(
      h("div", { class: "card empty", role: "alert" },
        h("h1", {}, "Not found"),
        h("p", {}, "There is no trial with this name, or this token does not give access to it."),
        h("p", {}, h("a", { href: "#/" }, "All trials that this token shows"))),
    );
  }
}

leave.addEventListener("click", () => {
  token.forget();
  words = "";
  location.hash = "#/";
  show();
});

window.addEventListener("hashchange", (event) => {
  if (new URL(event.newURL).hash === "#view") return; // the link that skips the heading
  show();
  view.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});

show();
