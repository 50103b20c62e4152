// What the drivers on Node share: the same task, report and results as in driver.py.

import { readFileSync } from "node:fs";

export const TASK = JSON.parse(readFileSync(0, "utf8"));

export class Report {
  #sections = { failures: {} };

  // `ask` gives the result of one way to ask for something that belongs to the section.
  async add(section, way, ask) {
    try {
      const result = await ask();
      (this.#sections[section] ??= {})[way] = result;
    } catch (error) {
      this.#sections.failures[`${section}: ${way}`] = String(error?.stack ?? error);
    }
  }

  print() {
    console.log(JSON.stringify(this.#sections));
  }
}

export function answer(text, finish, promptTokens, completionTokens) {
  return { text, finish, prompt_tokens: promptTokens, completion_tokens: completionTokens };
}

export function call(id, name, args) {
  return { id, name, arguments: typeof args === "string" ? JSON.parse(args) : args };
}

export async function exceptionOf(ask) {
  try {
    await ask();
  } catch (error) {
    return { type: error.constructor.name, message: error.message };
  }
  throw new Error("nothing was thrown");
}
