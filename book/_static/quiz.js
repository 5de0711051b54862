// The questions of the book: checks an answer, says why, and remembers it on this device only (localStorage).
(() => {
  const quizzes = [...document.querySelectorAll("fieldset.quiz")];
  const prefix = "mlcourse ";

  // A browser may refuse to keep anything: the questions work all the same.
  const memory = (action) => {
    try {
      return action(window.localStorage);
    } catch {
      return null;
    }
  };

  const toNumber = (text) => {
    const plain = text.trim().replace(",", ".").replace("−", "-");
    return plain === "" ? NaN : Number(plain);
  };

  const forgets = quizzes.map((quiz) => {
    const inputs = [...quiz.querySelectorAll(".quiz-answers input")];
    const isChoice = inputs[0].type === "radio";
    if (!isChoice) {
      // A browser that fills in forms would compute the layout of whole sections to look at their fields for text
      inputs[0].type = "hidden";
      addEventListener("load", () => { inputs[0].type = "text"; });
    }
    const buttons = quiz.querySelector(".quiz-buttons");
    const verdict = quiz.querySelector(".quiz-verdict");
    const explanations = [...quiz.querySelectorAll("li[data-key]")];
    const memo = document.createElement("p");
    memo.className = "quiz-memo";
    memo.hidden = true;
    memo.append("Your answer is remembered on this device only. ");
    verdict.after(memo);

    const given = () => (isChoice ? (inputs.find((one) => one.checked) ?? { value: "" }).value : inputs[0].value.trim());

    const clear = () => {
      verdict.replaceChildren();
      memo.hidden = true;
      delete quiz.dataset.result;
    };

    const say = (result, ...content) => {
      clear();
      quiz.dataset.result = result;
      const message = document.createElement("p");
      message.className = result;
      message.append(...content);
      verdict.append(message);
    };

    const find = (answer) => {
      if (isChoice) return explanations.find((one) => one.dataset.key === answer);
      const tolerance = Number(inputs[0].dataset.tolerance) * (1 + 1e-6);
      return explanations.find((one) => Math.abs(toNumber(answer) - Number(one.dataset.value)) <= tolerance);
    };

    const check = () => {
      const answer = given();
      if (isChoice ? !answer : Number.isNaN(toNumber(answer))) {
        say("missing", isChoice ? "Choose an answer first." : "Type a number first, such as 0.25.");
        inputs[0].focus();
        return;
      }
      const explanation = find(answer);
      if (explanation) {
        const why = explanation.querySelector(".quiz-why");
        say(why.classList.contains("right") ? "right" : "wrong", ...why.cloneNode(true).childNodes);
      } else {
        say("wrong", "✗ Not right, and none of the usual mistakes. How to get the number stands under “Answer”.");
      }
      memo.hidden = memory((store) => store.setItem(prefix + quiz.id, answer) ?? true) === null;
    };

    const forget = () => {
      memory((store) => store.removeItem(prefix + quiz.id));
      for (const one of inputs) isChoice ? (one.checked = false) : (one.value = "");
      clear();
    };

    const button = (label, action) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = label;
      made.addEventListener("click", () => {
        action();
        inputs[0].focus();
      });
      memo.append(made, " ");
    };
    button("Forget it", forget);
    button("Forget all answers", () => {
      forgets.forEach((one) => one());
      memory((store) =>
        Object.keys(store)
          .filter((key) => key.startsWith(prefix + "quiz-") || key.startsWith(prefix + "recall-"))
          .forEach((key) => store.removeItem(key)),
      );
    });

    quiz.querySelector(".quiz-check").addEventListener("click", check);
    for (const one of inputs) {
      one.addEventListener(isChoice ? "change" : "input", clear);
      one.addEventListener("keydown", (event) => {
        if (event.key === "Enter") check();
      });
    }
    buttons.hidden = false;

    const remembered = memory((store) => store.getItem(prefix + quiz.id));
    const same = inputs.find((one) => !isChoice || one.value === remembered);
    if (remembered !== null && same) {
      isChoice ? (same.checked = true) : (same.value = remembered);
      check();
    }
    verdict.setAttribute("aria-live", "polite"); // only now: what was remembered is not read aloud at every visit
    return forget;
  });
})();
