// The `openai` package on Node: chat, its stream helper, structured output, tools, responses, embeddings.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { Report, TASK, answer, call, exceptionOf } from "./driver.mjs";

const client = new OpenAI({ baseURL: TASK.base_url, apiKey: "none", maxRetries: 0 });
const chat = client.chat.completions;
const asked = { model: TASK.model, messages: TASK.messages, max_tokens: TASK.max_tokens, temperature: 0 };
const tool = { type: "function", function: TASK.tool };
const askedToCall = {
  ...asked,
  max_tokens: TASK.max_tokens_of_calls,
  tools: [tool],
  tool_choice: "required",
  parallel_tool_calls: false,
};
const Trip = z.strictObject({ city: z.enum(["Rome", "Bern"]), days: z.number().int().min(1).max(9) });

function answerOf({ choices: [{ message, finish_reason: finish }], usage }) {
  return answer(message.content, finish, usage.prompt_tokens, usage.completion_tokens);
}

function answerOfResponse({ output_text: text, status, usage }) {
  return answer(text, status, usage.input_tokens, usage.output_tokens);
}

function callsOf({ choices: [{ message }] }) {
  return message.tool_calls.map((item) => call(item.id, item.function.name, item.function.arguments));
}

const report = new Report();

await report.add("answers", "plain", async () => answerOf(await chat.create(asked)));

await report.add("answers", "stream", async () => {
  let text = "";
  let finish = null;
  let usage = null;
  for await (const chunk of await chat.create({ ...asked, stream: true, stream_options: { include_usage: true } })) {
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? "";
      finish = choice.finish_reason ?? finish;
    }
  }
  return answer(text, finish, usage.prompt_tokens, usage.completion_tokens);
});

await report.add("answers", "stream helper", async () => {
  const stream = chat.stream({ ...asked, stream_options: { include_usage: true } });
  let text = "";
  stream.on("content", (delta) => (text += delta));
  const completion = await stream.finalChatCompletion();
  if (text !== completion.choices[0].message.content) throw new Error(`told ${text}`);
  return answerOf(completion);
});

const responding = {
  model: TASK.model,
  input: TASK.messages,
  max_output_tokens: TASK.max_tokens,
  temperature: 0,
};

await report.add("answers", "responses", async () => answerOfResponse(await client.responses.create(responding)));

await report.add("answers", "responses stream helper", async () => {
  const stream = client.responses.stream(responding);
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const response = await stream.finalResponse();
  if (text !== response.output_text) throw new Error(`told ${text}`);
  return answerOfResponse(response);
});

await report.add("calls", "plain", async () => callsOf(await chat.create(askedToCall)));

await report.add("calls", "stream helper", async () => callsOf(await chat.stream(askedToCall).finalChatCompletion()));

await report.add("objects", "parse", async () => {
  const wanted = zodResponseFormat(Trip, "trip");
  const limit = TASK.max_tokens_of_calls;
  const completion = await chat.parse({ ...asked, max_tokens: limit, response_format: wanted });
  return completion.choices[0].message.parsed;
});

await report.add("others", "after a call", async () => {
  const { message } = (await chat.create(askedToCall)).choices[0];
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: TASK.result };
  return answerOf(await chat.create({ ...asked, messages: [...TASK.messages, message, result], tools: [tool] }));
});

await report.add("others", "embedding", async () => {
  return (await client.embeddings.create({ model: TASK.model, input: "a river" })).data[0].embedding;
});

await report.add("others", "models", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  return ids;
});

await report.add("others", "too long", () => {
  return exceptionOf(() => chat.create({ ...asked, messages: [{ role: "user", content: TASK.too_long }] }));
});

report.print();
